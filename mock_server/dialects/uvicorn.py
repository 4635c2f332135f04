"""How uvicorn writes headers, behind which vLLM and SGLang stand."""

from __future__ import annotations

from aiohttp import web

_FIRST = ("date", "server", "content-length", "content-type", "vary")


async def headers_as_uvicorn(_: web.Request, response: web.StreamResponse) -> None:
    """Names in small letters, in its order. A signal of an application's answers."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    response.headers.clear()
    for name in (*_FIRST, *(name for name in headers if name not in _FIRST)):
        if name in headers:
            response.headers[name] = headers[name]
