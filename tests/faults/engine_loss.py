"""What F2 and F3 share: requests of both kinds in flight while the engine is lost, and what became of each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.calls import CHAT, ERRORS, Call, chat_body, get, post, text_of, whole
from tests.server.running import RunningServer

LOOK_SECONDS = 0.01
STREAM_TOKENS, WHOLE_TOKENS = 400, 32


@dataclass
class Watch:
    """When `/health` and `/ready` said what."""

    failures: int = 0
    not_ready: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)

    def until(self, times: list[float], since: float) -> float:
        """Seconds from then to the first of these times after it."""
        return min((moment - since for moment in times if moment > since), default=float("inf"))


@contextlib.asynccontextmanager
async def watching(url: str) -> AsyncIterator[Watch]:
    watch = Watch()

    async def look() -> None:
        while True:
            try:
                watch.failures += (await whole(url, "/health"))[0] != 200
                call = await get(url, "/ready")
                status = await call.head()
                call.close()
                (watch.ready if status == 200 else watch.not_ready).append(time.monotonic())
            except ERRORS:
                watch.failures += 1
            await asyncio.sleep(LOOK_SECONDS)

    task = asyncio.ensure_future(look())
    try:
        yield watch
    finally:
        task.cancel()


@dataclass
class Loss:
    """One loss of the engine."""

    watch: Watch
    lost: float = 0.0
    error_seconds: list[float] = field(default_factory=list)
    """Until each open stream was told."""
    false_ends: int = 0
    unfinished: int = 0
    """Streams that ended in nothing, neither an error nor an end."""
    num_whole: int = 0
    not_replayed: int = 0
    """Of the whole answers, those that did not come, or not with the same text."""

    @property
    def seconds_to_notice(self) -> float:
        return self.watch.until(self.watch.not_ready, self.lost)

    @property
    def seconds_to_ready(self) -> float:
        return self.watch.until(self.watch.ready, self.lost + self.seconds_to_notice)


async def lose_engine(server: RunningServer, num_in_flight: int, lose: Callable[[int], None]) -> Loss:
    """Half of them stream and have shown something, the others are whole answers; then `lose(pid of the engine)`."""
    num_streams = num_in_flight // 2
    prompts = [f"Write a list, number {number}." for number in range(num_in_flight - num_streams)]
    bodies = [chat_body(prompt, WHOLE_TOKENS) for prompt in prompts]
    expected = [text_of((await whole(server.url, CHAT, body))[1]) for body in bodies]
    async with watching(server.url) as watch:
        loss = Loss(watch, num_whole=len(bodies))
        begun = [asyncio.Event() for _ in range(num_streams)]
        streams = [asyncio.ensure_future(_stream(server.url, loss, event)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        wholes = [asyncio.ensure_future(whole(server.url, CHAT, body)) for body in bodies]
        await asyncio.sleep(0.1)
        pid = server.children()["engine"]
        loss.lost = time.monotonic()
        lose(pid)
        await asyncio.gather(*streams)
        for task, text in zip(wholes, expected, strict=True):
            loss.not_replayed += not await _is_answered(task, text)
        while loss.seconds_to_ready == float("inf"):
            await asyncio.sleep(LOOK_SECONDS)
    return loss


async def _is_answered(task: asyncio.Future[tuple[int, Any]], text: str) -> bool:
    try:
        status, answer = await task
    except ERRORS:
        return False
    return status == 200 and text_of(answer) == text


async def _stream(url: str, loss: Loss, begun: asyncio.Event) -> None:
    call: Call = await post(url, CHAT, chat_body("Count upwards.", STREAM_TOKENS, stream=True))
    last: Any = None
    try:
        async for event in call.events():
            last = event
            if "error" in event:
                loss.error_seconds.append(time.monotonic() - loss.lost)
            elif event != "[DONE]" and event["choices"][0]["delta"].get("content"):
                begun.set()
    except ERRORS:
        last = None
    finally:
        begun.set()
        call.close()
    if last == "[DONE]" or (last and "error" not in last and last["choices"][0]["finish_reason"]):
        loss.false_ends += 1
    elif last is None or "error" not in last:
        loss.unfinished += 1
