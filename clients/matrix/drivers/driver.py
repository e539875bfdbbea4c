"""What the drivers in Python share. A driver reads a line for each thing to do, and writes one with its outcome; both are forms as of URLs.

In:  do (ask, together, stream, half, say), method, url, header ("NAME: VALUE", many), body (base64), times, pause, until, message
Out: status, version, header (many), body (its first bytes), bytes (how many it had); `together` one status and body each; or error
"""

import base64
import sys
from urllib.parse import parse_qs, urlencode

SHOWN = 4000


class Ask:
    def __init__(self, form):
        one = lambda name, default="": form.get(name, [default])[0]
        self.do, self.method, self.url, self.until, self.message = map(one, ("do", "method", "url", "until", "message"))
        self.urls = form.get("url", [])
        self.headers = dict(line.split(": ", 1) for line in form.get("header", []))
        self.body = base64.b64decode(one("body")) if "body" in form else None
        self.times, self.pause = int(one("times", "1")), float(one("pause", "0"))


def answer(status, headers, body, version="", **more):
    """The outcome of an ask; `body` is what the client hands its user."""
    body = body if isinstance(body, bytes) else body.encode()
    shown = body.decode("utf-8", "replace")
    return {"status": status, "version": version, "header": [f"{name}: {value}" for name, value in headers],
            "body": shown if len(shown) <= SHOWN else shown[:SHOWN // 2] + shown[-SHOWN // 2:], "bytes": len(body), **more}


def serve(**operations):
    for line in sys.stdin:
        ask = Ask(parse_qs(line.rstrip("\n"), keep_blank_values=True))
        try:
            outcome = operations[ask.do](ask)
        except KeyError:
            outcome = {"error": f"{sys.argv[0]} has no {ask.do}"}
        except Exception as error:
            outcome = {"error": f"{type(error).__name__}: {error}"}
        print(urlencode(outcome, doseq=True), flush=True)
