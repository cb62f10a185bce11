"""How the server did over the last minutes: a sample a second, so that a page opened now sees what went before."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from pagoda.engine.remote import EngineState
from pagoda.observability.histogram import Histogram
from pagoda.observability.requests import RequestStatistics

SAMPLE_SECONDS = 1.0
NUM_SAMPLES = 300
LATENCY_SECONDS = 60.0


@dataclass(frozen=True)
class Sample:
    """Counters as they stood at `time`, and what was under way."""

    time: float
    num_new_tokens: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_running: int
    num_waiting: int
    used: float
    """Share of the pages that requests hold."""
    first_token: Histogram
    between_tokens: Histogram


@dataclass(frozen=True)
class Rates:
    """What happened between two samples, for each second of it."""

    seconds_ago: float
    new_tokens: float
    prompt_tokens: float
    num_running: int
    num_waiting: int
    used: float


class History:
    def __init__(self, statistics: RequestStatistics, engine: EngineState) -> None:
        self._statistics = statistics
        self._engine = engine
        self._samples: deque[Sample] = deque(maxlen=NUM_SAMPLES + 1)

    async def keep(self) -> None:
        """Take samples until cancelled."""
        while True:
            self.take(time.monotonic())
            await asyncio.sleep(SAMPLE_SECONDS)

    def take(self, now: float) -> None:
        self._samples.append(self._look(now))

    def rates(self, now: float) -> list[Rates]:
        """The oldest first."""
        samples = list(self._samples)
        return [
            Rates(
                seconds_ago=now - after.time,
                new_tokens=(after.num_new_tokens - before.num_new_tokens) / (after.time - before.time),
                prompt_tokens=(after.num_prompt_tokens - before.num_prompt_tokens) / (after.time - before.time),
                num_running=after.num_running,
                num_waiting=after.num_waiting,
                used=after.used,
            )
            for before, after in zip(samples, samples[1:], strict=False)
        ]

    def since(self, now: float, seconds: float = LATENCY_SECONDS) -> tuple[Sample, Sample]:
        """How things stand, and how they stood so long ago, or when the oldest sample was taken."""
        latest = self._look(now)
        for sample in self._samples:
            if sample.time >= now - seconds:
                return latest, sample
        return latest, latest

    def _look(self, now: float) -> Sample:
        found, report, info = self._statistics, self._engine.report, self._engine.info
        used = 0.0
        if report is not None and info is not None and info.num_pages[0]:
            used = report.num_used_pages[0] / info.num_pages[0]
        return Sample(
            time=now,
            num_new_tokens=found.num_new_tokens,
            num_prompt_tokens=found.num_prompt_tokens,
            num_cached_tokens=found.num_cached_tokens,
            num_running=report.num_running if report else 0,
            num_waiting=report.num_waiting if report else 0,
            used=used,
            first_token=found.first_token.copy(),
            between_tokens=found.between_tokens.copy(),
        )
