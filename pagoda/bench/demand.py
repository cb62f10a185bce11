"""What a model asks of a device in a step, at the least: bytes that must move, products that must be made.

The model is run once on a table that only writes down what it is asked for, so whatever a family does is counted.
What passes between two operators is left out: it may never leave the caches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from pagoda.bench.shapes import StepShape
from pagoda.engine.build import Engine
from pagoda.executor.cuda.recording import record
from pagoda.kernels.base import Arithmetic, StoredWeight, Weight
from pagoda.kernels.cuda.recorder import Attend, Call, Linear, Norm

Stored = Callable[[Weight], StoredWeight]


class Work(msgspec.Struct, frozen=True):
    """A product and its sum are two operations."""

    num_bytes: int
    operations: dict[Arithmetic, int]

    @property
    def num_operations(self) -> int:
        return sum(self.operations.values())


@dataclass(slots=True)
class Matrices:
    """Weights that are read once a step, and the numbers in them that each token is multiplied with."""

    num_bytes: int = 0
    num_factors: Counter[Arithmetic] = field(default_factory=Counter)

    @classmethod
    def of(cls, calls: Iterable[Call], stored: Stored) -> Matrices:
        found = cls()
        weights: dict[int, Weight] = {}
        for call in calls:
            if isinstance(call, Linear):
                found.num_factors[stored(call.weight).arithmetic] += math.prod(call.weight.shape)
                weights |= {id(own): own for own in (call.weight, call.bias) if own is not None}
            elif isinstance(call, Norm):
                weights[id(call.weight)] = call.weight
        found.num_bytes = sum(stored(weight).num_bytes for weight in weights.values())
        return found


@dataclass(frozen=True, slots=True)
class Demand:
    body: Matrices
    """What every token passes through."""
    head: Matrices
    """What makes a row of logits: all that lies behind the last attention."""
    cached_bytes: tuple[int, ...]
    """By cache group: keys and values of one token."""
    pair_operations: tuple[int, ...]
    """By cache group: what a query costs for each key that it sees."""
    attention: Arithmetic

    @classmethod
    def of(cls, engine: Engine) -> Demand:
        stored = engine.loop.executor.stored
        calls = record(engine.model)[0].calls
        groups = engine.model.cache_groups()
        attends = [call for call in calls if isinstance(call, Attend)]
        # A CPU attends in singles whatever it multiplies weights in; a GPU as in its head, which is never rounded.
        [of_head] = {stored(call.weight).arithmetic for call in calls if isinstance(call, Linear) and call.is_head}
        return cls(
            body=Matrices.of((call for call in calls if not _is_of_logits(call)), stored),
            head=Matrices.of((call for call in calls if _is_of_logits(call)), stored),
            cached_bytes=tuple(group.bytes_per_token(engine.kv_cache_type) for group in groups),
            # Scores and their mix: a product and a sum each for every element of a query.
            pair_operations=tuple(
                sum(4 * call.reads[0].width for call in attends if call.group == index) for index in range(len(groups))
            ),
            attention=of_head if engine.config.device == "cuda" else "f32",
        )

    def work(self, shape: StepShape) -> Work:
        operations: Counter[Arithmetic] = Counter()
        parts = [(self.body, shape.num_tokens), (self.head, shape.num_logits)]
        for matrices, count in parts:
            for kind, num_factors in matrices.num_factors.items():
                operations[kind] += 2 * num_factors * count
        operations[self.attention] += _sum_of_products(self.pair_operations, shape.num_pairs)
        num_bytes = sum(matrices.num_bytes for matrices, count in parts if count)
        return Work(num_bytes + _sum_of_products(self.cached_bytes, shape.num_cached), dict(operations))


def _sum_of_products(first: Sequence[int], second: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _is_of_logits(call: Call) -> bool:
    return call.out is not None and call.out.is_rows
