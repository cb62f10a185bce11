"""What every engine is asked to do: the same token ids for all, drawn once from a fixed seed.

No imports but the standard library, since each engine runs in an environment of its own."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VOCAB_SIZE = 20_000  # prompts keep to these ids, which every model has


@dataclass(frozen=True)
class Task:
    """`num_requests` prompts at once; only the decoding is timed where `times_decoding` says so."""

    name: str
    num_requests: int
    num_prompt: int
    num_output: int
    times_decoding: bool

    def prompts(self, vocab_size: int = VOCAB_SIZE) -> list[list[int]]:
        rng = random.Random(7)
        return [[rng.randrange(10, vocab_size) for _ in range(self.num_prompt)] for _ in range(self.num_requests)]

    @property
    def num_counted(self) -> int:
        """The tokens that the speed is counted in."""
        if self.num_output == 1:
            return self.num_requests * self.num_prompt
        return self.num_requests * (self.num_output - self.times_decoding)

    @property
    def is_long(self) -> bool:
        return self.num_requests * self.num_context > 4096

    @property
    def num_context(self) -> int:
        """The longest that one request gets."""
        return self.num_prompt + self.num_output


TASKS = {
    task.name: task
    for task in (
        Task("prompt512", 1, 512, 1, False),
        Task("decode1", 1, 16, 65, True),
        Task("decode32", 32, 16, 33, True),
        Task("serve32", 32, 128, 128, False),
    )
}


@dataclass(frozen=True)
class Setup:
    """What a worker is started with."""

    model: str
    num_threads: int
    num_streams: int = 32
    compute: str = ""
    cache_type: str = ""

    @staticmethod
    def from_command_line() -> Setup:
        return Setup(**json.loads(sys.argv[1]))


@dataclass(frozen=True)
class Outcome:
    seconds: float
    longest_stall: float | None = None
    """The longest that a stream which had begun to answer waited for its next token; None: not known."""


def peak_mebibytes(process_id: int | str = "self") -> float:
    """The most memory a process ever had in use at once."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {process_id} has no VmHWM")


def serve(run: Callable[[Task], Outcome], peak: Callable[[], float] = peak_mebibytes) -> None:
    """Answer task names on standard input with how long they took, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    sys.stdout = sys.stderr
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        task = TASKS[line.strip()]
        outcome = run(task)
        reply: dict[str, Any] = {
            "tokens_per_second": task.num_counted / outcome.seconds,
            "longest_stall": outcome.longest_stall,
            "peak_mebibytes": peak(),
        }
        print(json.dumps(reply), file=answers, flush=True)
