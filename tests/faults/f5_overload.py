"""F5: ten times as many requests as can be answered. Those over the queue's end are refused at once and told when to
come back; the others are answered as fast as ever."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import time
from dataclasses import dataclass, field

from benchmarks.server.http_stacks import cpu_seconds
from tests.faults.calls import CHAT, ERRORS, chat_body, post
from tests.faults.goals import Goals, quantile, run_script
from tests.faults.held import memory_bytes, until_idle, warm_up
from tests.server.running import RunningServer

NUM_ROWS, NUM_QUEUED = 16, 32
# So few pages that all of them have been written when the peak is known: what grows after that is no page.
PAGES = ("--num-pages", "192", "--max-model-len", "512")
OPTIONS = ("--max-num-seqs", str(NUM_ROWS), "--max-queued-requests", str(NUM_QUEUED), *PAGES)
ANSWER_TOKENS = 32
# Of questions: all have as many digits, and begin alike, so that one costs what another does.
FIRST_AT_PEAK, FIRST_OVER_IT = 1_000_000, 1_500_000
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
        spent = {name: -cpu_seconds(pid) for name, pid in everyone.items()}
        tally = Tally()
        start = time.monotonic()
        await overload(server.url, tally, peak * times, seconds)
        goodput = tally.rate(start + seconds / 4, start + seconds)  # as at the peak: once the rows are full
        await until_idle(server.url)
        spent = {name: spent[name] + cpu_seconds(pid) for name, pid in everyone.items()}
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


async def ask(url: str, tally: Tally, number: int) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            call = await post(url, CHAT, chat_body(f"Say something of {number}.", ANSWER_TOKENS))
            status = await call.head()
            if status == 200:
                await call.body()
                tally.answered.append(time.monotonic())
            elif status in (429, 503):
                tally.refused.append(time.monotonic() - call.start)
                tally.without_retry_after += "retry-after" not in (call.headers or {})
            else:
                tally.other += 1
            call.close()
    except TimeoutError:
        tally.timeouts += 1
    except ERRORS:
        tally.resets += 1


async def find_peak(url: str, seconds: float) -> float:
    """Requests a second with as many under way as the server takes, none like another."""
    tally = Tally()
    numbers = itertools.count(FIRST_AT_PEAK)
    start = time.monotonic()
    end = start + seconds

    async def client() -> None:
        while time.monotonic() < end:
            await ask(url, tally, next(numbers))

    await asyncio.gather(*(client() for _ in range(NUM_ROWS + NUM_QUEUED // 2)))
    return tally.rate(start + seconds / 4, end)


async def overload(url: str, tally: Tally, rate: float, seconds: float) -> None:
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            group.create_task(ask(url, tally, FIRST_OVER_IT + number))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
