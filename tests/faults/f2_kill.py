"""F2: the engine is killed with requests in flight, again and again; at last too often, and the server gives up."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time

from pagoda.server.supervisor import DEATH_SECONDS, MOST_DEATHS
from tests.faults.engine_loss import Loss, lose_engine
from tests.faults.goals import Goals, run_script
from tests.server.running import RunningServer

PAUSE_SECONDS = DEATH_SECONDS / (MOST_DEATHS - 1) + 1  # more often, and the supervisor gives up


async def experiment(model: str, kills: int, in_flight: int) -> Goals:
    goals = Goals(f"F2: {kills} kills of the engine, {in_flight} requests in flight")
    losses = []
    with RunningServer(model) as server:
        load_seconds = await until_loaded(server)
        for number in range(kills):
            start = time.monotonic()
            losses.append(await lose_engine(server, in_flight, lambda pid: os.kill(pid, signal.SIGKILL)))
            if number + 1 < kills:
                await asyncio.sleep(max(0.0, PAUSE_SECONDS - (time.monotonic() - start)))
        describe(goals, losses, load_seconds)
        goals.at_most(
            "until /ready says no, longest", max(loss.seconds_to_notice for loss in losses), 0.5, "s", is_timed=True
        )
        code = await asyncio.to_thread(kill_too_often, server)
    goals.note("exit code after three deaths in a minute", code)
    goals.exactly("it is not 0", code != 0, True)
    return goals


async def until_loaded(server: RunningServer) -> float:
    """Seconds from the engine's start to its first answer."""
    start = time.monotonic()
    while "engine" not in server.children():
        start = time.monotonic()
        await asyncio.sleep(0.002)
    await asyncio.to_thread(server.wait_until_ready)
    return time.monotonic() - start


def describe(goals: Goals, losses: list[Loss], load_seconds: float) -> None:
    told = [seconds for loss in losses for seconds in loss.error_seconds]
    goals.note("open streams told with an error event", len(told))
    goals.exactly("streams that ended as if complete", sum(loss.false_ends for loss in losses), 0)
    goals.exactly("streams that ended without a word", sum(loss.unfinished for loss in losses), 0)
    goals.note("whole answers under way", sum(loss.num_whole for loss in losses))
    goals.exactly("of these not answered, or with another text", sum(loss.not_replayed for loss in losses), 0)
    goals.exactly("failures of /health", sum(loss.watch.failures for loss in losses), 0)
    delays = [max(loss.error_seconds, default=0.0) - loss.seconds_to_notice for loss in losses]
    goals.at_most("until the last stream is told, from when it is noticed", max(delays), 1.0, "s", is_timed=True)
    again = max(loss.seconds_to_ready for loss in losses)
    goals.note("load time", load_seconds, "s")
    goals.at_most("until ready again, from when it is noticed", again, load_seconds + 2, "s", is_timed=True)


def kill_too_often(server: RunningServer) -> int:
    seen = set()
    deadline = time.monotonic() + DEATH_SECONDS
    while server.is_running and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # it may end at any moment
            pid = server.children().get("engine")
            if pid is not None and pid not in seen:
                seen.add(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return server.wait(10)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
