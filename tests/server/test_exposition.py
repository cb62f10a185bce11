"""Prometheus's text format, read back by Prometheus's own client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pagoda.observability.histogram import Histogram
from pagoda.server.exposition import Family, exposition

TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"], whitelist_characters="\n"), max_size=20)


def read(*families: Family) -> dict[str, object]:
    return {found.name: found for found in text_string_to_metric_families(exposition(families).decode())}


@given(TEXTS, st.floats(allow_nan=False, allow_infinity=False))
def test_labels_and_values_come_back_as_they_were(label: str, value: float):
    [found] = read(Family(("a",), "gauge", "Some", (({"x": label, "y": ""}, value),))).values()
    [sample] = found.samples
    assert (sample.name, sample.labels, sample.value) == ("a", {"x": label, "y": ""}, value)
    assert found.type == "gauge" and found.documentation == "Some"


def test_a_counter_under_two_names():
    found = read(Family(("a", "vllm:b"), "counter", "Some", (({}, 3), ({"x": "1"}, 4))))
    assert [name for name in found] == ["a", "vllm:b"]
    for name, family in found.items():
        assert [(s.name, s.labels, s.value) for s in family.samples] == [
            (f"{name}_total", {}, 3.0),
            (f"{name}_total", {"x": "1"}, 4.0),
        ]


@given(st.lists(st.floats(0, 100), max_size=30))
def test_a_histogram_counts_upwards(values: list[float]):
    histogram = Histogram((0.5, 1.0, 50.0))
    for value in values:
        histogram.add(value)
    [found] = read(Family(("h",), "histogram", "Some", (({"m": "x"}, histogram),))).values()
    by_bound = {s.labels["le"]: s.value for s in found.samples if s.name == "h_bucket"}
    for bound in (0.5, 1.0, 50.0):
        assert by_bound[str(bound)] == sum(value <= bound for value in values)
    assert by_bound["+Inf"] == len(values)
    rest = {s.name: s.value for s in found.samples if s.name != "h_bucket"}
    assert rest == {"h_count": len(values), "h_sum": histogram.total}
