"""What a step costs the host, and how long the GPU waits between two steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(eq=False)
class StepClock:
    """Stands before an executor and reads the clocks around its calls."""

    executor: Any
    host_waits: float = 0.0
    num_steps: int = 0
    marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def submit(self, plan: Any, payloads: Any) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.executor.submit(plan, payloads)
        end.record()
        if not plan.is_empty:
            self.marks.append((begin, end))
            self.num_steps += 1

    def collect(self) -> Any:
        start = time.perf_counter()
        result = self.executor.collect()
        self.host_waits += time.perf_counter() - start
        return result

    def reset(self) -> None:
        self.host_waits, self.num_steps = 0.0, 0
        self.marks.clear()

    def report(self, seconds: float) -> dict[str, float]:
        torch.cuda.synchronize()
        gaps = sum(
            max(0.0, first[1].elapsed_time(second[0]))
            for first, second in zip(self.marks, self.marks[1:], strict=False)
        )
        steps = max(1, self.num_steps)
        return {
            "steps": self.num_steps,
            "step_ms": 1e3 * seconds / steps,
            "host_us": 1e6 * (seconds - self.host_waits) / steps,
            "gpu_waits": gaps / 1e3 / seconds,
        }
