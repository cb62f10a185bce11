"""The most tokens a second that this machine allows when a model decodes."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.bench.demand import Demand
from pagoda.bench.roofline import reading_seconds
from pagoda.bench.shapes import StepShape
from pagoda.core.cache import CacheGroup
from pagoda.kernels.base import Compute
from pagoda.kernels.peaks import Peaks


def roofline(
    demand: Demand, groups: Sequence[CacheGroup], peaks: Peaks, num_streams: int, context: int, compute: Compute = "f32"
) -> float:
    """As if all products were made in `compute`, whatever the engine makes them in."""
    work = demand.work(StepShape.of_decoding(groups, num_streams, context))
    computing = sum(work.operations.values()) / peaks.operations_per_second[compute]
    return num_streams / max(reading_seconds(work, peaks), computing)
