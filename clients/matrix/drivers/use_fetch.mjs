// fetch and WebSocket as Node has them.
import { fetching, saying, serve } from './driver.mjs'

serve({ ...fetching(fetch), ...saying(WebSocket) })
