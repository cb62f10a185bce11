"""The rows of the GPU's table: a model, a workload, what the peers reached, and the goal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """`vllm`, `sglang`, `limit` and `goal` are tokens a second, or milliseconds where `is_latency`."""

    name: str
    shape: str
    work: str
    vllm: float
    sglang: float
    limit: float
    goal: float
    quantization: str = "none"

    @property
    def is_latency(self) -> bool:
        return self.work == "ttft1k"


ROWS = [
    Row("8b-single", "8b", "single", 205, 204, 273, 235),
    Row("8b-ttft1k", "8b", "ttft1k", 36.8, 26.6, 22, 24.5),
    Row("8b-decode256", "8b", "decode256", 19_057, 18_610, 26_300, 22_000),
    Row("8b-seed", "8b", "seed", 8_919, 8_671, 11_000, 9_700),
    Row("8b-prefix", "8b", "prefix", 9_089, 8_563, 20_900, 16_000),
    Row("fp8-single", "8b", "single", 283, 286, 500, 380, "fp8"),
    Row("fp8-ttft1k", "8b", "ttft1k", 21.2, 18.6, 14, 16, "fp8"),
    Row("fp8-decode256", "8b", "decode256", 23_737, 23_131, 35_100, 27_500, "fp8"),
    Row("fp8-seed", "8b", "seed", 12_026, 11_862, 16_000, 13_500, "fp8"),
    Row("fp8-prefix", "8b", "prefix", 10_910, 10_458, 31_800, 22_000, "fp8"),
    Row("0.6b-single", "0.6b", "single", 533, 615, 3_400, 1_200),
    Row("0.6b-decode256", "0.6b", "decode256", 34_227, 44_268, 78_800, 55_000),
    Row("0.6b-nano", "0.6b", "nano", 22_079, 23_591, 33_000, 27_500),
]


def wanted_rows(names: str) -> list[Row]:
    """Names with commas between them, or `all`."""
    if names == "all":
        return ROWS
    known = {row.name: row for row in ROWS}
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"--rows: {', '.join(unknown)} is none of {', '.join(known)}")
    return [known[name] for name in known if name in wanted]


def with_vllm(rows: Iterable[Row], measured: Path | None) -> list[Row]:
    """vLLM's published figures replaced by those of a file, where it has any."""
    found = {} if measured is None else json.loads(measured.read_text(encoding="utf-8"))
    return [replace(row, vllm=found.get(row.name, row.vllm)) for row in rows]
