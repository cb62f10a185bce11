"""F4: requests that need several times the pages there are: some are pushed back, none is lost, no answer changes."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from tests.faults.calls import CHAT, chat_body, text_of, whole
from tests.faults.goals import Goals, run_script
from tests.faults.held import metrics
from tests.server.running import RunningServer

PAGE_SIZE = 16
ANSWER_TOKENS = 192
PAGES_EACH = 15  # of the prompt, its template and the answer
OVERSUBSCRIBED = 4
MOST_PUSHED_BACK = 3


async def experiment(model: str, requests: int) -> Goals:
    goals = Goals(f"F4: {requests} requests on a {OVERSUBSCRIBED}th of the pages they need")
    bodies = [chat_body(f"Tell me about the number {number}.", ANSWER_TOKENS) for number in range(requests)]
    num_fitting = requests // OVERSUBSCRIBED
    pages = ("--num-pages", str(num_fitting * PAGES_EACH), "--max-model-len", "512")
    expected, _, _ = await run(model, bodies, "--max-num-seqs", str(requests))
    _, ideal, pushed = await run(model, bodies, *pages, "--max-num-seqs", str(num_fitting))
    goals.exactly("pushed back when only as many run as fit", pushed, 0.0)
    found, speed, pushed = await run(model, bodies, *pages, "--max-num-seqs", str(requests))
    goals.exactly("answers lost or failed", sum(answer is None for answer in found), 0)
    differing = sum(ours != theirs for ours, theirs in zip(found, expected, strict=True))
    goals.exactly("answers that differ from those with all pages", differing, 0)
    goals.at_least("pushed back", pushed, 1)
    goals.at_most("the same for each request, on average", pushed / requests, MOST_PUSHED_BACK)
    goals.note("as many as fit: tokens a second", ideal)
    goals.note("all at once: tokens a second", speed)
    goals.at_least("share of the speed when only as many run as fit", speed / ideal, 0.85, is_timed=True)
    return goals


async def run(model: str, bodies: list[dict[str, Any]], *options: str) -> tuple[list[str | None], float, float]:
    """The answers (None for an error), tokens a second, and how often requests were pushed back."""
    with RunningServer(model, *options) as server:
        server.wait_until_ready()
        start = time.monotonic()
        answers = await asyncio.gather(*(whole(server.url, CHAT, body) for body in bodies))
        seconds = time.monotonic() - start
        pushed = (await metrics(server.url))["preemptions_total"]
    texts = [text_of(answer) if status == 200 else None for status, answer in answers]
    return texts, len(bodies) * ANSWER_TOKENS / seconds, pushed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=32)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
