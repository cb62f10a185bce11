"""Ratios and goals on made-up speeds."""

from __future__ import annotations

import pytest

from benchmarks.cpu.summary import Goal, judge, ratios, spread

SPEEDS = {"pagoda": 150.0, "pagoda int8": 240.0, "llama.cpp": 100.0, "llama.cpp Q4_0": 125.0, "openvino int8": 200.0}


def test_spread() -> None:
    found = spread([3.0, 1.0, 2.0, 10.0])
    assert (found.median, found.least, found.most) == (2.5, 1.0, 10.0)
    assert str(found) == "1-10"


def test_ratios_are_ours_over_theirs() -> None:
    assert ratios(SPEEDS, "pagoda")["llama.cpp"] == 1.5
    assert "pagoda" not in ratios(SPEEDS, "pagoda")


@pytest.mark.parametrize(
    ("goal", "rival", "ratio", "is_met"),
    [
        (Goal("t", "llama.cpp", 1.5, exactly=True), "llama.cpp", 1.5, True),
        (Goal("t", "llama.cpp", 1.5), "llama.cpp Q4_0", 1.2, False),
        (Goal("t", "", 1.1), "openvino int8", 0.75, False),
    ],
)
def test_judge(goal: Goal, rival: str, ratio: float, is_met: bool) -> None:
    verdict = judge(goal, SPEEDS, "pagoda")
    assert verdict is not None
    assert (verdict.rival, verdict.ratio, verdict.is_met) == (rival, pytest.approx(ratio), is_met)


def test_our_other_columns_are_no_rivals() -> None:
    verdict = judge(Goal("t", "", 1.0), SPEEDS, "pagoda int8")
    assert verdict is not None
    assert verdict.rival == "openvino int8"
    assert str(verdict) == "met"


def test_a_missed_goal_says_by_how_much() -> None:
    assert str(judge(Goal("t", "llama.cpp", 2.0, exactly=True), SPEEDS, "pagoda")) == "missed by 25%"


@pytest.mark.parametrize("goal", [Goal("t", "vllm", 1.0), Goal("t", "llama.cpp Q8_0", 1.0, exactly=True)])
def test_no_verdict_without_a_rival(goal: Goal) -> None:
    assert judge(goal, SPEEDS, "pagoda") is None


def test_no_verdict_without_ours() -> None:
    assert judge(Goal("t", "", 1.0), {"llama.cpp": 1.0}, "pagoda") is None
