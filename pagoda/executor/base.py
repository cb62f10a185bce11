"""What the engine asks of whatever runs its plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.result import StepResult
from pagoda.kernels.base import Array, IntArray, KVPages, StoredWeight, Weight
from pagoda.kernels.sampling import SampledTokens, SamplingBatch


class Executor(Protocol):
    """Carries out plans in the order they are submitted and gives their results in the same order."""

    @property
    def lateness(self) -> int:
        """How many steps may be under way when the next one is planned."""
        ...

    @property
    def num_in_flight(self) -> int:
        """Plans submitted whose results were not collected yet."""
        ...

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        """Begin a step. `payloads` are for the rows that the plan starts, in the same order."""
        ...

    def collect(self) -> StepResult:
        """The result of the oldest step under way; waits for it."""
        ...

    @property
    def num_halved_steps(self) -> int:
        """Steps that were done in parts because there was no memory for the whole."""
        ...

    def use_idle_time(self) -> bool:
        """Do a little of what may make later steps faster; whether there is more of it."""
        ...

    def allocated_bytes(self) -> dict[str, int]:
        """By line of `MemoryPlan`: what was really taken."""
        ...

    def stored(self, weight: Weight) -> StoredWeight:
        """How the device keeps a weight of its model."""
        ...

    def close(self) -> None: ...


class WorkerOperators(Protocol):
    """The part of the operator table that a worker uses beside the forward pass."""

    def copy_pages(self, pages: KVPages, sources: IntArray, targets: IntArray) -> None: ...

    def sample(self, logits: Array, batch: SamplingBatch) -> SampledTokens: ...

    def num_bytes(self) -> int:
        """Of the weights, in the form they are computed with."""
        ...

    def stored(self, weight: Weight) -> StoredWeight: ...
