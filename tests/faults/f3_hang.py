"""F3: the engine stops in the middle of its work (SIGSTOP) and says nothing any more."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from tests.faults.engine_loss import lose_engine
from tests.faults.f2_kill import describe, until_loaded
from tests.faults.goals import Goals, run_script
from tests.faults.held import metrics, step_seconds
from tests.server.running import RunningServer

STEPS = 5


async def experiment(model: str, in_flight: int) -> Goals:
    goals = Goals(f"F3: a hung engine, {in_flight} requests in flight")
    with RunningServer(model) as server:
        load_seconds = await until_loaded(server)
        loss = await lose_engine(server, in_flight, lambda pid: os.kill(pid, signal.SIGSTOP))
        slowest = step_seconds(await metrics(server.url))
        log = "".join(server.log)
    longest = max(5.0, STEPS * slowest)
    goals.at_most("until it is noticed", loss.seconds_to_notice, longest, "s", is_timed=True)
    describe(goals, [loss], load_seconds)
    goals.exactly("its stack is in the log", "engine/loop.py" in log and "most recent call first" in log, True)
    return goals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in-flight", type=int, default=64)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
