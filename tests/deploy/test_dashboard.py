"""The dashboard asks for nothing that the server does not export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.conftest import tiny_folder, tiny_reference  # noqa: F401 - fixtures
from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

DASHBOARD = json.loads(Path("deploy/grafana/pagoda.json").read_text())
METRIC = re.compile(r"\b(?:pagoda_|vllm:|process_)\w+")
GROUPING = re.compile(r"\bby \(([^)]*)\)|(\w+)(?:=~|!~|=|!=)\"")


def queries() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


@pytest.fixture(scope="module")
def exported(tiny_folder: Path) -> dict[str, set[str]]:  # noqa: F811
    """Label names by the name of a sample, after a request and an error."""
    with RunningServer(tiny_folder, *OPTIONS) as running:
        running.wait_until_ready()
        with running.client() as client:
            client.post("/v1/completions", json={"prompt": "the", "max_tokens": 2}).raise_for_status()
            client.get("/nowhere")
            text = client.get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_is_about_a_metric_that_is_there_with_those_labels(exported: dict[str, set[str]]):
    num_queries = 0
    for title, query in queries():
        names = METRIC.findall(query)
        assert names, f"{title}: no metric in {query}"
        for name in names:
            assert name in exported, f"{title}: {name} is not exported"
            for grouped, compared in GROUPING.findall(query):
                for label in [compared] if compared else grouped.replace(" ", "").split(","):
                    assert label in exported[name] | {"le"}, f"{title}: {name} has no label {label}"
        num_queries += 1
    assert num_queries > 30


def test_the_dashboard_is_whole():
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
