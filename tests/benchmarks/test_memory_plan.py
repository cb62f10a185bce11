"""A server under load holds what was planned for it."""

from __future__ import annotations

import pytest

from benchmarks.memory_plan import measure


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["int8", "f32"])
def test_a_server_under_load_holds_what_was_planned(smollm2_path, compute: str):
    lines, processes = measure(str(smollm2_path), compute)
    assert all(row.planned == row.actual for row in lines), lines
    engine, *others = processes
    assert abs(engine.error) <= 0.1, engine
    whole = sum(row.actual for row in processes) / sum(row.planned for row in processes)
    assert abs(whole - 1) <= 0.1, others
