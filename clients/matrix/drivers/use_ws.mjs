// ws.
import WebSocket from 'ws'
import { saying, serve } from './driver.mjs'

serve(saying(WebSocket))
