"""The table of limits."""

from __future__ import annotations

import pytest

from pagoda.core.errors import InvalidRequest
from pagoda.server.limits import Limits


@pytest.mark.parametrize("field", Limits.__struct_fields__)
def test_a_limit_is_a_whole_number_of_at_least_one(field: str):
    for bad in (0, -1, True, 1.5, "1"):
        with pytest.raises(InvalidRequest, match=field):
            Limits(**{field: bad})
    assert getattr(Limits(**{field: 1}), field) == 1


def test_what_the_engine_limits_can_only_be_made_stricter():
    assert Limits(max_n=4).max_n == 4
    with pytest.raises(InvalidRequest, match="max_n.*at most 16"):
        Limits(max_n=17)
