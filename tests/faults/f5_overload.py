"""F5: ten times as many requests as can be answered. Those over the queue's end are refused at once and told when to
come back; the others are answered as fast as ever."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.faults.calls import CHAT, chat_body, request_bytes
from tests.faults.goals import Goals, quantile, run_script
from tests.faults.held import memory_bytes, processor_seconds, until_idle, warm_up
from tests.server.running import RunningServer

NUM_ROWS, NUM_QUEUED = 16, 32
# So few pages that all of them have been written when the peak is known: what grows after that is no page.
PAGES = ("--num-pages", "192", "--max-model-len", "512")
OPTIONS = ("--max-num-seqs", str(NUM_ROWS), "--max-queued-requests", str(NUM_QUEUED), *PAGES)
ANSWER_TOKENS = 32
PATIENCE = 60.0
MEBIBYTE = 1 << 20


@dataclass
class Tally:
    answered: list[float] = field(default_factory=list)
    """When."""
    refused: list[float] = field(default_factory=list)
    """After how many seconds."""
    without_retry_after: int = 0
    other: int = 0
    resets: int = 0
    timeouts: int = 0

    def rate(self, start: float, end: float) -> float:
        return sum(start <= moment <= end for moment in self.answered) / (end - start)


async def experiment(model: str, times: float, seconds: float) -> Goals:
    goals = Goals(f"F5: {times:g} times overload for {seconds:g} s")
    with RunningServer(model, *OPTIONS) as server:
        server.wait_until_ready()
        await warm_up(server)
        peak = await find_peak(server.url, min(seconds, 12.0))
        pids = server.children()
        await until_idle(server.url)
        before = {name: memory_bytes(pid) for name, pid in pids.items()}
        everyone = {**pids, "client": os.getpid()}
        spent = {name: -processor_seconds(pid) for name, pid in everyone.items()}
        tally = Tally()
        start = time.monotonic()
        await overload(server.url, tally, peak * times, seconds)
        goodput = tally.rate(start + seconds / 4, start + seconds)  # as at the peak: once the rows are full
        await until_idle(server.url)
        spent = {name: spent[name] + processor_seconds(pid) for name, pid in everyone.items()}
        growth = {name: (memory_bytes(pid) - before[name]) / MEBIBYTE for name, pid in pids.items()}
    goals.note("requests a second at the peak", peak)
    goals.note("requests a second sent", peak * times)
    goals.note("answered", len(tally.answered))
    goals.note("refused", len(tally.refused))
    goals.at_least("of the peak still answered", goodput / peak, 0.95, is_timed=True)
    goals.note("until refused, median", quantile(tally.refused, 0.5) * 1000, "ms")
    goals.at_most("until refused, 99th percentile", quantile(tally.refused, 0.99) * 1000, 20, "ms", is_timed=True)
    for name in ("engine", "http", "client"):
        goals.note(f"processor time of {name}", spent[name], "s")
    goals.exactly("refused without a time to come back", tally.without_retry_after, 0)
    goals.exactly("answered with anything else", tally.other, 0)
    goals.exactly("connections reset", tally.resets, 0)
    goals.exactly("not answered in time", tally.timeouts, 0)
    goals.note("growth of the engine's memory", growth["engine"], "MiB")
    goals.note("growth of the HTTP process's memory", growth["http"], "MiB")
    goals.at_most("both", sum(growth.values()), 50, "MiB")
    return goals


class Caller(asyncio.Protocol):
    """One request on a connection of its own, for as little processor time as Python can: the client runs on the same
    cores as the server, which in life it does not."""

    def __init__(self, url: str, tally: Tally, number: int) -> None:
        self._request = request_bytes(CHAT, chat_body(f"Say something of {number}.", ANSWER_TOKENS))
        self._address = urlsplit(url)
        self._tally = tally
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self) -> None:
        loop = asyncio.get_running_loop()
        self._start = time.monotonic()
        patience = loop.call_later(PATIENCE, self._give_up)
        try:
            await loop.create_connection(lambda: self, self._address.hostname, self._address.port)
            await self._done
        except ConnectionError:
            self._tally.resets += 1
        finally:
            patience.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._received:
            self._first = time.monotonic()
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done.done():
            return
        self._done.set_result(None)
        head, _, body = self._received.partition(b"\r\n\r\n")
        status = head[9:12]
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length is None or len(body) != int(length[1]):
            self._tally.resets += 1
        elif status == b"200":
            self._tally.answered.append(time.monotonic())
        elif status in (b"429", b"503"):
            self._tally.refused.append(self._first - self._start)
            self._tally.without_retry_after += b"retry-after:" not in head.lower()
        else:
            self._tally.other += 1

    def _give_up(self) -> None:
        if self._done.done():
            return
        self._tally.timeouts += 1
        self._done.set_result(None)
        if self._transport is not None:
            self._transport.abort()


async def find_peak(url: str, seconds: float) -> float:
    """Requests a second with as many under way as the server takes, none like another."""
    tally = Tally()
    numbers = itertools.count(1_000_000)
    start = time.monotonic()
    end = start + seconds

    async def client() -> None:
        while time.monotonic() < end:
            await Caller(url, tally, next(numbers)).ask()

    await asyncio.gather(*(client() for _ in range(NUM_ROWS + NUM_QUEUED // 2)))
    return tally.rate(start + seconds / 4, end)


async def overload(url: str, tally: Tally, rate: float, seconds: float) -> None:
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            group.create_task(Caller(url, tally, number).ask())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
