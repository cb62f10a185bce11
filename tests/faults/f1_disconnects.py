"""F1: clients that leave: while they wait, during the prompt, during the answer, with several answers.

Some leave one at a time, so that every token drawn after that can be counted; the others all at once and beside
requests that stay, whose answers must be the same as ever.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections import Counter
from typing import Any

from tests.faults.calls import CHAT, Call, chat_body, post, text_of, whole
from tests.faults.goals import Goals, quantile, run_script
from tests.faults.held import drawing_steps, held, held_again, metrics, step_seconds, until_idle, warm_up
from tests.server.running import RunningServer

OPTIONS = ("--max-num-seqs", "16", "--max-queued-requests", "512", "--max-queued-tokens", "10000000")
KINDS = ("queued or in prefill", "whole answer", "in decode", "in decode, n = 4")
NUM_AT_ONCE = 48
NUM_INNOCENTS = 3
LONG_PROMPT_WORDS = 1500
INNOCENT = chat_body("Name a river.", 24)


async def experiment(model: str, disconnects: int, seed: int = 0) -> Goals:
    goals = Goals("F1: clients that leave")
    luck = random.Random(seed)
    num_alone = max(8, disconnects // 10)
    with RunningServer(model, *OPTIONS) as server:
        server.wait_until_ready()
        await warm_up(server)
        before = await held(server)
        steps, seconds, each_step = await leave_alone(server.url, luck, num_alone)
        counts, failures = await leave_together(server.url, luck, max(0, disconnects - num_alone))
        after = await held_again(server, before)
        counters = await metrics(server.url)
    goals.note("left one at a time in decode, n = 1 and 4", num_alone)
    goals.at_most("steps whose tokens had not come when the client left, median", quantile(steps, 0.5), 1)
    # One may be on its way while the next is computed.
    goals.at_most("the same, 99th percentile", quantile(steps, 0.99), 2, is_timed=True)
    goals.note("the same, most", max(steps, default=0))
    slowest = quantile(each_step, 0.99) + 0.05
    goals.at_most("until its pages are free, 99th percentile", quantile(seconds, 0.99), slowest, "s", is_timed=True)
    for kind in KINDS:
        goals.note(f"left {kind}", counts[kind])
    goals.note("had their answer before they could leave", counts["ended"])
    goals.note("requests beside them that stayed", counts["innocent"])
    goals.exactly("of these failed or were answered otherwise", failures, 0)
    for name in ("used_pages", "http_files", "http_threads", "engine_files", "engine_threads"):
        goals.exactly(f"held afterwards: {name}", getattr(after, name), getattr(before, name))
    goals.exactly("deaths of the engine", counters["engine_deaths_total"], 0.0)
    return goals


async def leave_alone(url: str, luck: random.Random, count: int) -> tuple[list[float], list[float], list[float]]:
    """For each that left: steps that still drew for it; seconds until its pages were free; seconds a step took."""
    steps, seconds, slowest = [], [], []
    for number in range(count):
        num_answers = 1 if number % 2 else 4
        before = await until_idle(url, 0.005)
        body = chat_body(f"Tell story {luck.random()}.", 200, n=num_answers, stream=True, logprobs=True)
        call = await post(url, CHAT, body)
        num_seen = await read_some(call, luck.randint(1, 12) * num_answers)
        slowest.append(step_seconds(await metrics(url)))
        num_seen += read_what_is_there(call)
        call.leave(politely=bool(luck.getrandbits(1)))
        left = time.monotonic()
        after = await until_idle(url, 0.002)
        seconds.append(time.monotonic() - left)
        steps.append(math.floor(drawing_steps(before, after, num_answers) - num_seen / num_answers))
    return steps, seconds, slowest


def num_tokens(event: Any) -> int:
    """Every token comes with its score, those without a text included."""
    return sum(len(choice["logprobs"]["content"]) for choice in event["choices"] if choice["logprobs"])


async def read_some(call: Call, least: int) -> int:
    count = 0
    async for event in call.events():
        count += num_tokens(event)
        if count >= least:
            break
    return count


def read_what_is_there(call: Call) -> int:
    """Tokens that have come already. The stream's own buffer is the only place that knows."""
    waiting = bytes(call.reader._buffer)  # type: ignore[attr-defined]
    lines = [line[6:] for line in waiting.split(b"\n") if line.startswith(b"data: {")]
    return sum(num_tokens(json.loads(line)) for line in lines if line.endswith(b"}"))


async def leave_together(url: str, luck: random.Random, count: int) -> tuple[Counter[str], int]:
    counts: Counter[str] = Counter()
    _, answer = await whole(url, CHAT, INNOCENT)
    expected = text_of(answer)
    left = asyncio.Event()
    turns = iter(range(count))

    async def leaver() -> None:
        for _ in turns:
            kind = luck.choice(KINDS)
            counts[kind if await leave_one(url, luck, kind) else "ended"] += 1

    async def innocent() -> int:
        failures = 0
        while not left.is_set():
            status, answer = await whole(url, CHAT, INNOCENT)
            counts["innocent"] += 1
            failures += status != 200 or text_of(answer) != expected
        return failures

    innocents = [asyncio.ensure_future(innocent()) for _ in range(NUM_INNOCENTS)]
    await asyncio.gather(*(leaver() for _ in range(NUM_AT_ONCE)))
    left.set()
    return counts, sum(await asyncio.gather(*innocents))


async def leave_one(url: str, luck: random.Random, kind: str) -> bool:
    """Whether it left before its answer was complete."""
    politely = bool(luck.getrandbits(1))
    if "decode" in kind:
        num_answers = 4 if "n = 4" in kind else 1
        call = await post(url, CHAT, chat_body(f"Story {luck.random()}", 100, n=num_answers, stream=True))
        num_wanted = luck.randint(1, 10) * num_answers
        async for event in call.events():
            num_wanted -= 1
            if not num_wanted or event == "[DONE]":
                break
        is_early = num_wanted == 0
    else:
        num_words = LONG_PROMPT_WORDS if "prefill" in kind else 5
        prompt = f"{luck.random()} " + " ".join(str(luck.randint(0, 9)) for _ in range(num_words))
        call = await post(url, CHAT, chat_body(prompt, 60, stream="prefill" in kind))
        try:
            await asyncio.wait_for(call.head(), luck.uniform(0, 1.0))
            is_early = False
        except TimeoutError:
            is_early = True
    call.leave(politely)
    return is_early


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--disconnects", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
