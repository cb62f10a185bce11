"""F6: SIGTERM under load: with time enough, with too little, and twice."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.calls import CHAT, ERRORS, chat_body, post, whole
from tests.faults.goals import Goals, run_script
from tests.server.running import RunningServer

ANSWER_TOKENS = 100
# Of answers that a fast machine does not finish within the short window either.
LONG_ANSWER_TOKENS, SHORT_WINDOW = 400, 1


@dataclass
class Stop:
    """What happened after the signal."""

    ready_statuses: list[int] = field(default_factory=list)
    new_statuses: list[int] = field(default_factory=list)
    without_retry_after: int = 0
    ends: dict[str, int] = field(default_factory=lambda: {"complete": 0, "error": 0, "broken": 0})
    seconds: float = 0.0
    code: int | None = None
    orphans: int = 0
    leftovers: int = 0


async def experiment(model: str, in_flight: int) -> Goals:
    goals = Goals(f"F6: SIGTERM with {in_flight} streams under way")
    enough = await stop(model, in_flight)
    goals.exactly("with time enough: streams that were completed", enough.ends["complete"], in_flight)
    goals.note("looks at /ready meanwhile", len(enough.ready_statuses))
    goals.exactly("what it said", sorted(set(enough.ready_statuses)), [503])
    goals.note("new requests meanwhile", len(enough.new_statuses))
    goals.exactly("what they were answered", sorted(set(enough.new_statuses)), [503])
    goals.exactly("without a time to come back", enough.without_retry_after, 0)
    goals.exactly("exit code", enough.code, 0)
    goals.at_most("seconds from the signal to the end", enough.seconds, 31, "s", is_timed=True)
    short = await stop(model, in_flight, "--drain-seconds", str(SHORT_WINDOW), num_tokens=LONG_ANSWER_TOKENS)
    goals.exactly(f"with {SHORT_WINDOW} s: streams that broke off without a word", short.ends["broken"], 0)
    goals.at_least("streams that were told with an error event", short.ends["error"], 1)
    goals.exactly("exit code then", short.code, 0)
    goals.at_most("seconds from the signal to the end then", short.seconds, SHORT_WINDOW + 1, "s", is_timed=True)
    twice = await stop(model, in_flight, num_signals=2)
    goals.at_most("seconds from the second signal to the end", twice.seconds, 1, "s", is_timed=True)
    each = (enough, short, twice)
    goals.exactly("processes left behind", sum(one.orphans for one in each), 0)
    goals.exactly("files left behind", sum(one.leftovers for one in each), 0)
    return goals


async def stop(
    model: str, in_flight: int, *options: str, num_signals: int = 1, num_tokens: int = ANSWER_TOKENS
) -> Stop:
    found = Stop()
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningServer(model, *options, environment={"TMPDIR": folder}) as server,
    ):
        server.wait_until_ready()
        children = server.children()
        begun = [asyncio.Event() for _ in range(in_flight)]
        streams = [asyncio.ensure_future(stream(server.url, found, event, num_tokens)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        server.signal(signal.SIGTERM)
        if num_signals == 2:
            await asyncio.sleep(0.3)
            server.signal(signal.SIGTERM)
        start = time.monotonic()
        asking = asyncio.ensure_future(ask_meanwhile(server.url, found))
        found.code = await asyncio.to_thread(server.wait)
        found.seconds = time.monotonic() - start
        await asyncio.gather(*streams)
        asking.cancel()
        found.leftovers = len(os.listdir(folder))
    found.orphans = sum(Path(f"/proc/{pid}").exists() for pid in children.values())
    return found


async def ask_meanwhile(url: str, found: Stop) -> None:
    await asyncio.sleep(0.05)
    while True:
        try:
            status, _ = await whole(url, "/ready")
            found.ready_statuses.append(status)
            call = await post(url, CHAT, chat_body("late", 1))
            found.new_statuses.append(await call.head())
            found.without_retry_after += "retry-after" not in (call.headers or {})
            call.close()
        except ERRORS:  # it no longer listens
            return
        await asyncio.sleep(0.05)


async def stream(url: str, found: Stop, begun: asyncio.Event, num_tokens: int) -> None:
    call = await post(url, CHAT, chat_body("Count upwards.", num_tokens, stream=True))
    last: Any = None
    try:
        async for event in call.events():
            last = event
            begun.set()
    except ERRORS:
        last = None
    call.close()
    end = "complete" if last == "[DONE]" else "error" if last and "error" in last else "broken"
    found.ends[end] += 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in-flight", type=int, default=32)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
