"""The same two routes on each web framework: what a chat completion asks of it, with a model that costs nothing.

Run by `http_stacks.py`, in an environment that has the frameworks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec

NUM_CHUNKS = 200


class Message(msgspec.Struct):
    role: str
    content: str


class Body(msgspec.Struct):
    model: str
    messages: list[Message]
    stream: bool = False
    temperature: float | None = None


class Delta(msgspec.Struct):
    content: str


class Choice(msgspec.Struct):
    index: int
    delta: Delta
    logprobs: None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[Choice]
    object: str = "chat.completion.chunk"


encoder = msgspec.json.Encoder()
decoder = msgspec.json.Decoder(Body)


def event(index: int) -> bytes:
    chunk = Chunk("chatcmpl-0123456789abcdef", 1_763_000_000, "smollm2", [Choice(0, Delta(f" token{index}"))])
    return b"data: " + encoder.encode(chunk) + b"\n\n"


async def events() -> AsyncIterator[bytes]:
    for index in range(NUM_CHUNKS):
        await asyncio.sleep(0)  # a token comes from elsewhere
        yield event(index)
    yield b"data: [DONE]\n\n"


def answer(body: Body) -> bytes:
    return encoder.encode({"model": body.model, "text": body.messages[-1].content})


async def read_body(receive: Any) -> bytes:
    data, more = b"", True
    while more:
        message = await receive()
        data += message.get("body", b"")
        more = message.get("more_body", False)
    return data


def bare_app() -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = decoder.decode(await read_body(receive))
        kind = b"text/event-stream" if body.stream else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        if body.stream:
            async for data in events():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": answer(body)})

    return app


def starlette_app() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    async def chat(request: Request) -> Response:
        body = decoder.decode(await request.body())
        if body.stream:
            return StreamingResponse(events(), media_type="text/event-stream")
        return Response(answer(body), media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


def fastapi_app() -> Any:
    import pydantic
    from fastapi import FastAPI
    from fastapi.responses import Response, StreamingResponse

    class PydanticMessage(pydantic.BaseModel):
        role: str
        content: str

    class PydanticBody(pydantic.BaseModel):
        model: str
        messages: list[PydanticMessage]
        stream: bool = False
        temperature: float | None = None

    class PydanticDelta(pydantic.BaseModel):
        content: str

    class PydanticChoice(pydantic.BaseModel):
        index: int
        delta: PydanticDelta
        logprobs: None = None
        finish_reason: str | None = None

    class PydanticChunk(pydantic.BaseModel):
        id: str
        created: int
        model: str
        choices: list[PydanticChoice]
        object: str = "chat.completion.chunk"

    app = FastAPI()

    async def pydantic_events() -> AsyncIterator[str]:
        for index in range(NUM_CHUNKS):
            await asyncio.sleep(0)
            choice = PydanticChoice(index=0, delta=PydanticDelta(content=f" token{index}"))
            chunk = PydanticChunk(
                id="chatcmpl-0123456789abcdef", created=1_763_000_000, model="smollm2", choices=[choice]
            )
            yield f"data: {chunk.model_dump_json()}\n\n"
        yield "data: [DONE]\n\n"

    async def chat(body: Any) -> Any:
        if body.stream:
            return StreamingResponse(pydantic_events(), media_type="text/event-stream")
        return Response(f'{{"model": "{body.model}"}}', media_type="application/json")

    chat.__annotations__ = {"body": PydanticBody}  # a local class: its name alone would not be found
    app.post("/v1/chat/completions")(chat)
    return app


def litestar_app() -> Any:
    from litestar import Litestar, Request, post
    from litestar.response import Response, Stream

    names = {"Request": Request, "Response": Response, "Stream": Stream}

    @post("/v1/chat/completions", status_code=200, signature_namespace=names)
    async def chat(request: Request) -> Response | Stream:
        body = decoder.decode(await request.body())
        if body.stream:
            return Stream(events(), media_type="text/event-stream")
        return Response(answer(body), media_type="application/json")

    return Litestar([chat], openapi_config=None)


def run_aiohttp(port: int) -> None:
    import uvloop
    from aiohttp import web

    async def chat(request: web.Request) -> web.StreamResponse:
        body = decoder.decode(await request.read())
        if not body.stream:
            return web.Response(body=answer(body), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for data in events():
            await response.write(data)
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    web.run_app(app, host="127.0.0.1", port=port, print=None, loop=uvloop.new_event_loop(), access_log=None)


APPS = {"bare": bare_app, "starlette": starlette_app, "fastapi": fastapi_app, "litestar": litestar_app}


def run_uvicorn(app: str, port: int, http: str, loop: str) -> None:
    import uvicorn

    uvicorn.run(APPS[app](), host="127.0.0.1", port=port, http=http, loop=loop, log_level="critical", access_log=False)


def run_granian(app: str, port: int) -> None:
    from granian.constants import Interfaces, Loops
    from granian.server.embed import Server

    server = Server(APPS[app](), address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_access=False)
    del Loops
    import uvloop

    uvloop.run(server.serve())


def main() -> None:
    server, app, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if server == "granian":
        run_granian(app, port)
    elif server == "aiohttp":
        run_aiohttp(port)
    else:
        _, http, loop = server.split("-")
        run_uvicorn(app, port, http, loop)


if __name__ == "__main__":
    main()
