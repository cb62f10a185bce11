from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pagoda.decoding.token_history import TokenHistory

tokens = st.lists(st.integers(0, 300), max_size=200)


@given(tokens, tokens, tokens)
def test_grows_as_if_counted_anew(prompt: list[int], output: list[int], observed: list[int]) -> None:
    history = TokenHistory(prompt, output)
    for token_id in observed:
        history.observe(token_id)
    counts = Counter(output + observed)
    token_ids = history.token_ids.tolist()
    assert len(token_ids) == len(set(token_ids))
    expected = {token_id: counts[token_id] for token_id in {*prompt, *output, *observed}}
    assert dict(zip(token_ids, history.output_counts.tolist(), strict=True)) == expected
