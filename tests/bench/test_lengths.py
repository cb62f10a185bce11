from __future__ import annotations

import random
import statistics

import pytest

from pagoda.bench.lengths import Lengths
from pagoda.core.errors import InvalidRequest


def drawn(text: str, count: int = 4000) -> list[int]:
    lengths = Lengths.parse("--input-len", text)
    rng = random.Random(3)
    return [lengths.draw(rng) for _ in range(count)]


def test_constant() -> None:
    assert set(drawn("128")) == {128} == set(drawn("constant:128"))


def test_uniform_reaches_both_ends() -> None:
    values = drawn("uniform:5,9")
    assert set(values) == {5, 6, 7, 8, 9}


def test_normal_has_its_mean_and_deviation() -> None:
    values = drawn("normal:500,100")
    assert statistics.mean(values) == pytest.approx(500, rel=0.02)
    assert statistics.stdev(values) == pytest.approx(100, rel=0.05)


def test_lognormal_has_its_median_and_a_long_tail() -> None:
    values = drawn("lognormal:300,0.8")
    assert statistics.median(values) == pytest.approx(300, rel=0.06)
    assert statistics.mean(values) == pytest.approx(300 * 2.718281828 ** (0.8**2 / 2), rel=0.1)


def test_no_length_is_below_one() -> None:
    assert min(drawn("normal:2,50")) == 1


@pytest.mark.parametrize("text", ["128", "uniform:5,9", "normal:500,100", "lognormal:300,0.8"])
def test_it_writes_itself_as_it_is_read(text: str) -> None:
    assert str(Lengths.parse("x", text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "x", "normal", "normal:5", "normal:5,x", "zipf:1", "uniform:9,5", "0", "-3", "nan", "uniform:0,5", "1,2"],
)
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--input-len"):
        Lengths.parse("--input-len", text)
