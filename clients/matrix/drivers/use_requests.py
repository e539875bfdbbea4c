"""requests: `use_requests.py`"""

from concurrent.futures import ThreadPoolExecutor

import requests
from driver import answer, serve

session = requests.Session()


def send(ask, url=None, **more):
    return session.request(ask.method, url or ask.url, headers=ask.headers, data=ask.body, timeout=60, **more)


def told(found, body):
    return answer(found.status_code, found.headers.items(), body, {11: "1.1"}.get(found.raw.version, "?"))


def ask(ask):
    found = send(ask)
    return told(found, found.content)


def together(ask):
    with ThreadPoolExecutor(len(ask.urls)) as pool:
        found = list(pool.map(lambda url: send(ask, url), ask.urls))
    return {"status": [one.status_code for one in found], "body": [one.text for one in found]}


def stream(ask):
    seen = ""
    with send(ask, stream=True) as found:
        for piece in found.iter_content(None):
            seen += piece.decode()
            if ask.until and ask.until in seen:
                break
        return told(found, seen)


def half(ask):
    """Ends the sending side as urllib3 begins to wait for the answer."""
    import socket
    from urllib3.connection import HTTPConnection

    getresponse = HTTPConnection.getresponse

    def half_closed(connection):
        connection.sock.shutdown(socket.SHUT_WR)
        return getresponse(connection)

    HTTPConnection.getresponse = half_closed
    try:
        found = send(ask)
        return told(found, found.content)
    finally:
        HTTPConnection.getresponse = getresponse


serve(ask=ask, together=together, stream=stream, half=half)
