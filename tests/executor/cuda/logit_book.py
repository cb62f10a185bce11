"""The bits of all logits that tokens were drawn from, so that a request's may be compared whatever ran beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pagoda.core.plan import RowPayload, StepPlan
from pagoda.executor.rows import in_order

Place = tuple[bytes, int, int]
"""A prompt, a sample of its answer, and the position of the token that is drawn."""


@dataclass(eq=False)
class LogitBook:
    """Of any number of engines with the same weights, one after the other."""

    digests: dict[Place, bytes] = field(default_factory=dict)
    num_repeated: int = 0
    """Logits that were computed once more."""
    differing: list[Place] = field(default_factory=list)
    """Those that then had other bits."""

    def note(self, place: Place, digest: bytes) -> None:
        if place not in self.digests:
            self.digests[place] = digest
            return
        self.num_repeated += 1
        if self.digests[place] != digest:
            self.differing.append(place)


class WatchedExecutor:
    """Stands before a CUDA executor. Each step waits for the device, and is otherwise what it would be."""

    def __init__(self, executor: Any, book: LogitBook) -> None:
        self._executor = executor
        self._book = book
        self._owners: dict[int, tuple[bytes, int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        for start, payload in in_order(plan.started, payloads):
            prompt = payload.token_ids[: payload.num_prompt_tokens].tobytes()
            self._owners[start.row] = (prompt, start.sample_index)
        self._executor.submit(plan, payloads)
        if not plan.is_empty:
            self._read()

    def _read(self) -> None:
        executor = self._executor
        asked, program = executor._asked, executor._program
        drawers = asked.drawers.tolist()
        is_row = asked.decodes and len(drawers) == 1
        steps = program._row_steps if is_row and program._row_steps is not None else program._steps
        logits = steps._places.view(steps._logits, len(drawers))  # of a graph as well: they lie still
        numbers = logits.view(torch.int16 if logits.element_size() == 2 else torch.int32).cpu().numpy()
        for row, own in zip(drawers, numbers, strict=True):
            position = int(executor._counts.num_tokens[row])
            self._book.note((*self._owners[row], position), hashlib.sha1(own.tobytes()).digest())
