"""What the machine allows: measured bandwidth and peaks, and the speed that follows for a step of a model."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import RESULTS

SOURCE = Path(__file__).with_name("peaks.cpp")


@dataclass(frozen=True)
class Peaks:
    threads: int
    bytes_per_second: float
    f32_per_second: float
    int8_per_second: float


def measure_peaks(num_threads: int) -> Peaks:
    program = RESULTS / "peaks"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        RESULTS.mkdir(exist_ok=True)
        subprocess.run(
            ["g++", "-O3", "-march=native", "-std=c++17", "-pthread", str(SOURCE), "-o", str(program)], check=True
        )
    output = subprocess.run([str(program), str(num_threads)], check=True, capture_output=True, text=True).stdout
    return Peaks(**json.loads(output))


@dataclass(frozen=True)
class Demand:
    """What one decoding step of a model reads and computes."""

    weight_bytes: int
    num_parameters: int
    """Weights that are multiplied for each token: the embedding counts once if it is also the output."""
    cache_bytes_per_token: int
    attention_width: int
    """Query heads times head width, summed over layers: a cached token costs 4 operations for each."""

    def bytes(self, num_streams: int, context: int) -> float:
        return self.weight_bytes + num_streams * context * self.cache_bytes_per_token

    def operations(self, num_streams: int, context: int) -> float:
        return num_streams * (2.0 * self.num_parameters + 4.0 * self.attention_width * context)


def roofline(demand: Demand, peaks: Peaks, num_streams: int, context: int, peak: str = "f32") -> float:
    """The most tokens a second: a step can be no shorter than its memory takes, nor than its arithmetic."""
    operations = peaks.f32_per_second if peak == "f32" else peaks.int8_per_second
    reading = demand.bytes(num_streams, context) / peaks.bytes_per_second
    computing = demand.operations(num_streams, context) / operations
    return num_streams / max(reading, computing)
