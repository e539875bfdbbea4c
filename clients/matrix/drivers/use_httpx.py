"""httpx: `use_httpx.py 1` or `use_httpx.py 2` (over TLS)"""

import asyncio
import sys

import httpx
from driver import answer, serve

TWO = sys.argv[1] == "2"
OPTIONS = {"http1": not TWO, "http2": TWO, "verify": False, "timeout": 60}
client = httpx.Client(**OPTIONS)


def told(found, body):
    return answer(found.status_code, found.headers.multi_items(), body, found.http_version.removeprefix("HTTP/").removesuffix(".0"))


def ask(ask):
    found = client.request(ask.method, ask.url, headers=ask.headers, content=ask.body)
    return told(found, found.content)


def together(ask):
    async def all_of_them():
        async with httpx.AsyncClient(**OPTIONS) as pool:
            asks = (pool.request(ask.method, url, headers=ask.headers, content=ask.body) for url in ask.urls)
            return await asyncio.gather(*asks)

    found = asyncio.run(all_of_them())
    return {"status": [one.status_code for one in found], "body": [one.text for one in found]}


def stream(ask):
    seen = ""
    with client.stream(ask.method, ask.url, headers=ask.headers) as found:
        for piece in found.iter_text():
            seen += piece
            if ask.until and ask.until in seen:
                break
        return told(found, seen)


serve(ask=ask, together=together, stream=stream)
