"""What every engine is asked to do: the same token ids for all, drawn once from a fixed seed.

No imports but the standard library, since each engine runs in an environment of its own."""

from __future__ import annotations

import json
import random
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """`num_requests` prompts at once; only the decoding is timed where `times_decoding` says so."""

    name: str
    num_requests: int
    num_prompt: int
    num_output: int
    times_decoding: bool

    def prompts(self, vocab_size: int) -> list[list[int]]:
        rng = random.Random(7)
        return [[rng.randrange(10, vocab_size) for _ in range(self.num_prompt)] for _ in range(self.num_requests)]

    @property
    def num_counted(self) -> int:
        """The tokens that the speed is counted in."""
        if self.num_output == 1:
            return self.num_requests * self.num_prompt
        return self.num_requests * (self.num_output - self.times_decoding)


TASKS = {
    task.name: task
    for task in (
        Task("prompt512", 1, 512, 1, False),
        Task("decode1", 1, 16, 65, True),
        Task("decode32", 32, 16, 33, True),
        Task("serve32", 32, 128, 128, False),
    )
}


def serve(run: Callable[[Task], float]) -> None:
    """Answer task names on standard input with seconds, until there are no more."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not get between the answers
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        task = TASKS[line.strip()]
        seconds = run(task)
        reply: dict[str, Any] = {"tokens_per_second": task.num_counted / seconds}
        reply["peak_mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(reply), file=answers, flush=True)
