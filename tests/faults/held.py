"""What a running server holds: pages, open files, threads, memory; and how to wait until it has nothing to do."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.calls import CHAT, chat_body, whole
from tests.server.running import RunningServer

NUM_WARM = 16
PATIENCE = 60.0


@dataclass(frozen=True)
class Held:
    used_pages: float
    """Share of all."""
    http_files: int
    http_threads: int
    engine_files: int
    engine_threads: int


async def metrics(url: str) -> dict[str, float]:
    """Our own numbers, without their labels; histograms are left out."""
    _, text = await whole(url, "/metrics")
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("pagoda_") and "le=" not in name:
            found[name.partition("{")[0].removeprefix("pagoda_")] = float(value)
    return found


async def until_idle(url: str, pause: float = 0.02) -> dict[str, float]:
    """Until no request is under way and no page is held."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await metrics(url)
        busy = [found[name] for name in ("requests_running", "requests_waiting", "requests_open")]
        if (not any(busy) and not found["kv_cache_usage_ratio"]) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(pause)


async def held(server: RunningServer) -> Held:
    found = await until_idle(server.url)
    children = server.children()
    return Held(found["kv_cache_usage_ratio"], *_of(children["http"]), *_of(children["engine"]))


async def held_again(server: RunningServer, before: Held, seconds: float = 5.0) -> Held:
    """What is held once it is as before, or after so many seconds: sockets take a moment to close."""
    deadline = time.monotonic() + seconds
    while (found := await held(server)) != before and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return found


def drawing_steps(before: dict[str, float], after: dict[str, float], num_answers: int) -> float:
    """Steps that drew tokens of the one request between: all that was computed beside its prompt, and the first,
    which comes with the prompt. Of several answers all but one compute the prompt's last token again: less than a step.
    """
    prompt = after["prompt_tokens_total"] - before["prompt_tokens_total"]
    cached = after["prefix_cache_hits_total"] - before["prefix_cache_hits_total"]
    computed = after["computed_tokens_total"] - before["computed_tokens_total"]
    return 1 + (computed - (prompt - cached)) / num_answers


def step_seconds(found: dict[str, float]) -> float:
    return found.get("engine_step_seconds") or found.get("last_step_seconds", 0.0)


def _of(pid: int) -> tuple[int, int]:
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def warm_up(server: RunningServer) -> None:
    """Have every thread started and every buffer made that stays from then on."""
    text = "a word and another " * 3000
    await asyncio.gather(*(whole(server.url, "/tokenize", {"prompt": text}) for _ in range(NUM_WARM)))
    await asyncio.gather(*(whole(server.url, CHAT, chat_body(f"{n}", 4)) for n in range(NUM_WARM)))
    await until_idle(server.url)
