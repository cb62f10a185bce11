from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.bench.report.scales import levels, linear, number, round_step, seconds_format


@given(st.floats(1e-9, 1e9))
def test_a_step_is_round_and_just_above(rough: float) -> None:
    step = round_step(rough)
    assert rough * 0.999 <= step <= rough * 5.001
    assert f"{step:.0e}"[0] in "125" and f"{step:.5e}"[2:7] == "00000"


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_an_axis_holds_all_values(values: list[float]) -> None:
    scale = linear(values)
    assert scale.low == 0 and scale.high >= max(values) * 0.999
    assert 2 <= len(scale.ticks) <= 7 and scale.ticks[0] == 0
    assert scale.place(0) == 0 and scale.place(scale.high) == pytest.approx(1)


def test_levels_that_double_are_evenly_apart() -> None:
    scale = levels([1, 2, 4, 8])
    assert [scale.place(value) for value in (1, 2, 4, 8)] == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_one_level_has_a_place() -> None:
    assert levels([4.0]).place(4.0) == 0


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.05, "0.05"), (12.345, "12.3"), (1234.5, "1,234"), (25_000, "25k"), (3.2e6, "3.2M")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_times_are_written_in_a_unit_that_suits_them() -> None:
    for most, value, text, unit in ((0.0005, 0.0005, "500", "µs"), (0.25, 0.1, "100", "ms"), (9.0, 2.5, "2.5", "s")):
        written, found = seconds_format(most)
        assert (written(value), found) == (text, unit)
