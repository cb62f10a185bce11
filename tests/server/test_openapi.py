"""The description of the routes says what is really checked."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_params import RANGES, SamplingParams
from pagoda.server.openapi import ERRORS, document
from pagoda.server.route_table import ROUTES

DOCUMENT: dict[str, Any] = document(ROUTES, "1")


def number_of(record: str, field: str) -> dict[str, Any]:
    described = DOCUMENT["components"]["schemas"][record]["properties"][field]
    [number] = [kind for kind in described.get("anyOf", [described]) if kind.get("type") in ("integer", "number")]
    return number


@pytest.mark.parametrize("field", sorted(set(RANGES) - {"max_tokens", "logprobs"}))
def test_the_range_of_a_sampling_parameter_is_the_one_that_is_checked(field: str):
    described = number_of("ChatRequest", field)
    highest = described["maximum"]
    lowest = described.get("minimum", described.get("exclusiveMinimum"))
    others = {"max_tokens": highest} if field == "min_tokens" else {}
    SamplingParams(**{field: highest}, **others)
    for beyond in (highest + 1, lowest - 1, *([lowest] if "exclusiveMinimum" in described else [])):
        with pytest.raises(InvalidRequest, match=field):
            SamplingParams(**{field: beyond})


def test_fields_that_are_called_alike_are_told_apart():
    assert number_of("CompletionRequest", "logprobs")["maximum"] == 20
    assert {"type": "boolean"} in DOCUMENT["components"]["schemas"]["ChatRequest"]["properties"]["logprobs"]["anyOf"]


def test_every_route_is_there_with_its_errors():
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        statuses = set(operation["responses"])
        assert statuses - {"200", "303"} <= set(ERRORS)
        assert ("401" in statuses) == (not route.is_open or route.redirects) and "405" in statuses
        assert ("415" in statuses) == (route.body is not None) == ("requestBody" in operation)
    for status in ERRORS:
        assert DOCUMENT["components"]["responses"][status]["description"]
