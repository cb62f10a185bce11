"""An engine process whose model costs nothing: loop, scheduler, cache and messages are the real ones.

    python -m benchmarks.server.free_engine SOCKET STATISTICS STEP_SECONDS NUM_ROWS

A step gives its tokens when STEP_SECONDS have passed since the one before, as a device would. On leaving, the host's
processor time of every step goes to the file STATISTICS: all of the step but the executor, the frame and its sending
included.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.result import StepResult
from pagoda.engine.loop import EngineLoop
from pagoda.engine.orphans import die_with_parent
from pagoda.engine.process import EngineProcess
from pagoda.engine.wire import EngineInfo, Hello, Ready, frame
from pagoda.kv_cache import KVCacheManager
from pagoda.scheduler import Scheduler

PAGE_SIZE = 16
MAX_MODEL_LEN = 2048
VOCABULARY = 49_152
FIRST_TOKEN, NUM_DIFFERENT = 1000, 20_000  # ordinary text in SmolLM2's vocabulary


class FreeExecutor:
    """Draws the next number; what it takes itself is counted apart."""

    lateness = 0
    num_halved_steps = 0

    def __init__(self, step_seconds: float) -> None:
        self.nanoseconds = 0
        self._step_seconds = step_seconds
        self._due = 0.0
        self._waiting: deque[StepPlan] = deque()
        self._num_drawn = 0

    @property
    def num_in_flight(self) -> int:
        return len(self._waiting)

    def use_idle_time(self) -> bool:
        return False

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        self._waiting.append(plan)

    def collect(self) -> StepResult:
        start = time.thread_time_ns()
        plan = self._waiting.popleft()
        num_new = plan.draws.astype(np.int32)
        count = int(num_new.sum())
        token_ids = (np.arange(self._num_drawn, self._num_drawn + count) % NUM_DIFFERENT + FIRST_TOKEN).astype(np.int32)
        self._num_drawn += 7 * count
        if self._step_seconds:
            time.sleep(max(0.0, self._due - time.perf_counter()))
            self._due = max(self._due, time.perf_counter()) + self._step_seconds
        self.nanoseconds += time.thread_time_ns() - start
        return StepResult(step_id=plan.step_id, num_new=num_new, token_ids=token_ids)

    def close(self) -> None:
        self._waiting.clear()


class TimedProcess(EngineProcess):
    """Notes what each step cost the host: rows and nanoseconds of processor time."""

    steps: list[tuple[int, int]]

    def _step(self) -> None:
        executor = self._loop.executor
        assert isinstance(executor, FreeExecutor)
        start, own = time.thread_time_ns(), executor.nanoseconds
        super()._step()
        taken = time.thread_time_ns() - start - (executor.nanoseconds - own)
        self.steps.append((self._loop.scheduler.num_running, taken))


def free_loop(step_seconds: float, num_rows: int) -> EngineLoop:
    num_pages = (num_rows + 8) * MAX_MODEL_LEN // PAGE_SIZE // 2
    cache = KVCacheManager([CacheGroup("full", (0,), 1, 64)], [num_pages], PAGE_SIZE)
    config = SchedulerConfig(max_num_seqs=num_rows, max_num_batched_tokens=8192)
    return EngineLoop(
        Scheduler(config, cache),
        FreeExecutor(step_seconds),
        model_name="free",
        vocab_size=VOCABULARY,
        max_model_len=MAX_MODEL_LEN,
    )


def describe(loop: EngineLoop) -> EngineInfo:
    return EngineInfo(
        model="free",
        model_path="",
        vocab_size=loop.vocab_size,
        max_model_len=loop.max_model_len,
        max_num_seqs=loop.scheduler.config.max_num_seqs,
        page_size=PAGE_SIZE,
        num_pages=tuple(pool.num_pages for pool in loop.scheduler.cache.pools),
        weight_bytes=0,
        cache_bytes=0,
        kv_cache_type="f32",
        compute="f32",
    )


def main(arguments: list[str]) -> None:
    path, statistics, step_seconds, num_rows = arguments
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = free_loop(float(step_seconds), int(num_rows))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(frame(Hello(os.getpid())))
        connection.sendall(frame(Ready(describe(loop))))
        process = TimedProcess(connection, SimpleNamespace(loop=loop))  # type: ignore[arg-type]
        process.steps = []
        process.run()
    Path(statistics).write_text(json.dumps(process.steps))


if __name__ == "__main__":
    main(sys.argv[1:])
