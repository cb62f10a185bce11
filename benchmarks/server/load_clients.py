"""What each HTTP client costs for a token: the load generator must not be what is measured.

    python -m benchmarks.server.load_clients [--clients pagoda httpx aiohttp]

A bare server sends every stream one event each few milliseconds, so that an event is a read of its own. What is
counted is the client's processor time. aiohttp is not among the project's tools and is left out where it is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import uvloop

from benchmarks.report import machine, print_table, write_json
from pagoda.bench.client import Client, Outcome, Target
from pagoda.bench.conversation import Question

NUM_STREAMS, NUM_EVENTS = 128, 200
BEAT_SECONDS = 0.02
EVENT = b'data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" word"}]}\n\n'
Talk = Callable[[str], Awaitable[int]]
"""Reads all streams of a server; how many events came."""


class Beat(asyncio.Protocol):
    """Answers any request with a stream, an event a beat."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST"):
            asyncio.ensure_future(self._stream())

    async def _stream(self) -> None:
        write = self._transport.write  # type: ignore[attr-defined]
        write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
        for _ in range(NUM_EVENTS):
            await asyncio.sleep(BEAT_SECONDS)
            write(chunk)
        write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Beat, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def pagoda_client(url: str) -> int:
    client = Client(Target(url, "m"))

    async def one() -> int:
        outcome = Outcome(time.perf_counter())
        await client.ask(Question([1, 2, 3], NUM_EVENTS), outcome)
        assert not outcome.error, outcome.message
        return len(outcome.times)

    return sum(await asyncio.gather(*(one() for _ in range(NUM_STREAMS))))


async def httpx_client(url: str) -> int:
    import httpx

    limits = httpx.Limits(max_connections=NUM_STREAMS)
    async with httpx.AsyncClient(limits=limits, timeout=60.0) as client:

        async def one() -> int:
            times = array("d")
            async with client.stream("POST", f"{url}/v1/completions", json={"stream": True}) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {") and json.loads(line[6:])["choices"]:
                        times.append(time.perf_counter())
            return len(times)

        return sum(await asyncio.gather(*(one() for _ in range(NUM_STREAMS))))


async def aiohttp_client(url: str) -> int:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one() -> int:
            times = array("d")
            async with session.post(f"{url}/v1/completions", json={"stream": True}) as response:
                async for line in response.content:
                    if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
                        times.append(time.perf_counter())
            return len(times)

        return sum(await asyncio.gather(*(one() for _ in range(NUM_STREAMS))))


CLIENTS: dict[str, Talk] = {"pagoda": pagoda_client, "httpx": httpx_client, "aiohttp": aiohttp_client}


def measure(talk: Talk, url: str, on_uvloop: bool) -> tuple[float, float]:
    """Events a second, and microseconds of processor time an event."""
    run = uvloop.run if on_uvloop else asyncio.run
    start, own = time.perf_counter(), time.process_time()
    count = run(talk(url))  # type: ignore[arg-type]
    seconds, own = time.perf_counter() - start, time.process_time() - own
    assert count == NUM_STREAMS * NUM_EVENTS, f"{count} events came"
    return count / seconds, own / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="what each HTTP client costs for a token")
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=CLIENTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.server:
        uvloop.run(serve())
        return
    command = [sys.executable, "-m", "benchmarks.server.load_clients", "--server"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    print(f"{machine()}; {NUM_STREAMS} streams of {NUM_EVENTS} events, medians of {arguments.repeats}")
    rows = []
    try:
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        for name in arguments.clients:
            if name != "pagoda" and find_spec(name) is None:
                print(f"{name} is not installed")
                continue
            for on_uvloop in (True, False):
                found = [measure(CLIENTS[name], url, on_uvloop) for _ in range(arguments.repeats)]
                rate, cost = (statistics.median(values) for values in zip(*found, strict=True))
                rows.append(
                    [name, "uvloop" if on_uvloop else "asyncio", round(rate), round(cost, 1), round(1e6 / cost)]
                )
    finally:
        server.terminate()
        server.wait()
    header = ("client", "loop", "events/s", "µs an event", "events/s a core could take")
    print_table("clients", header, rows)
    print(f"wrote {write_json('load_clients', {'clients': [dict(zip(header, row, strict=True)) for row in rows]})}")


if __name__ == "__main__":
    main()
