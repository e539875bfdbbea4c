"""websockets: `use_websockets.py`"""

import json

from driver import answer, serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State
from websockets.sync.client import connect

socket = None


def say(ask):
    """Sends a message, on a new socket where the last one is closed."""
    global socket
    if socket is None or socket.state is not State.OPEN:
        socket = connect(ask.url, max_size=None)
        socket.recv(timeout=60)
    try:
        socket.send(ask.message)
        said = socket.recv(timeout=60)
    except ConnectionClosed as closed:
        socket = None
        return {"error": f"closed with {closed.rcvd.code if closed.rcvd else 'nothing'}"}
    said = json.loads(said)
    return answer(0, (), json.dumps(said[0] if isinstance(said, list) else said))


serve(say=say)
