from __future__ import annotations

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding.token_rules import token_rules


def test_stop_tokens_are_banned_until_min_tokens() -> None:
    rules = token_rules(SamplingParams(min_tokens=3, stop_token_ids=(9,), banned_token_ids=(4,)), (2,), prompt_len=10)
    assert [rules.banned_at(position).tolist() for position in (10, 12, 13)] == [[2, 4, 9], [2, 4, 9], [4]]


def test_an_ignored_end_needs_no_ban() -> None:
    rules = token_rules(SamplingParams(min_tokens=3, ignore_eos=True), (2,), prompt_len=10)
    assert rules.banned_at(10).tolist() == []


def test_without_min_tokens_nothing_is_banned() -> None:
    assert token_rules(SamplingParams(), (2,), prompt_len=1).banned_at(1).tolist() == []


def test_where_only_stops_are_allowed_they_are_not_banned() -> None:
    rules = token_rules(SamplingParams(min_tokens=3, allowed_token_ids=(2,)), (2,), prompt_len=1)
    assert rules.banned_at(1).tolist() == []


def test_bias_becomes_arrays() -> None:
    rules = token_rules(SamplingParams(logit_bias={7: 1.5, 3: -2.0}), (), prompt_len=1)
    assert rules.bias_token_ids.tolist() == [7, 3] and rules.bias_values.tolist() == [1.5, -2.0]
