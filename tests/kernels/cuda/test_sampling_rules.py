"""Logits as records want them, against the reference's own functions in their order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import sampling_rules
from pagoda.kernels.cuda.sampling_rules import DrawingRows, shape_logits
from pagoda.kernels.reference.sampling.bias import apply_banned, apply_bias
from pagoda.kernels.reference.sampling.penalties import apply_penalties
from pagoda.kernels.sampling import BiasCells, Penalties, TokenCells
from tests.kernels.cuda.device import DEVICE, DTYPES, on_device, rounded, to_numpy
from tests.kernels.cuda.records import Rules, records_of

VOCAB_SIZE = 530  # no whole number of words, and two blocks
MAX_LEN = 400
GENERATOR = np.random.default_rng(3)
TOKENS = GENERATOR.integers(0, VOCAB_SIZE, (6, MAX_LEN)).astype(np.int32)
TOKENS[:, 1::3] = TOKENS[:, :1]  # one stands there often
STRENGTHS = (1.3, 0.7, -0.4)
EARLY, LATE = range(5, 400, 3), range(0, 530, 2)
BIASES = {3: 2.5, 529: -7.0, 40: 0.125}
EVERYTHING = Rules(30, STRENGTHS, stops_from=55, masks=(EARLY, LATE), biases=BIASES)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BLOCK", 512), ("TOKEN_BLOCK", 64), ("PARTS", 2)):
        monkeypatch.setattr(sampling_rules, name, value)


def expected_of(logits: np.ndarray, rules: Rules, tokens: np.ndarray, length: int) -> np.ndarray:
    """The reference on one row."""
    shaped = logits[None].copy()
    if rules.masks is not None:
        kept = set(rules.masks[length >= rules.stops_from])
        banned = np.array([token for token in range(VOCAB_SIZE) if token not in kept], np.int32)
        apply_banned(shaped, TokenCells(np.zeros_like(banned), banned))
    if rules.biases:
        ids = np.array(list(rules.biases), np.int32)
        values = np.array(list(rules.biases.values()), np.float32)
        apply_bias(shaped, BiasCells(np.zeros_like(ids), ids, values))
    if rules.strengths is not None:
        prompt, output = tokens[: min(length, rules.num_prompt_tokens)], tokens[rules.num_prompt_tokens : length]
        seen = sorted({*prompt.tolist(), *output.tolist()})
        counts = Counter(output.tolist())
        ids, repeats = np.array(seen, np.int32), np.array([counts[token] for token in seen], np.int32)
        strengths = [np.array([strength], np.float32) for strength in rules.strengths]
        apply_penalties(shaped, Penalties(np.zeros_like(ids), ids, repeats, *strengths))
    return shaped[0]


def run(
    logits: np.ndarray, rules: list[Rules], rows: list[int], lengths: list[int], dtype: torch.dtype = torch.float32
) -> np.ndarray:
    """`rules` are those of the worker's rows; logits[i] belong to the row rows[i]."""
    out = torch.full((len(rows) + 1, VOCAB_SIZE), float("nan"), device=DEVICE)
    counts = torch.zeros((len(rows) + 1, VOCAB_SIZE), dtype=torch.int32, device=DEVICE)
    drawing = DrawingRows(on_device(np.array(rows, np.int32)), on_device(np.array(lengths, np.int32)))
    records = on_device(records_of(rules, VOCAB_SIZE))
    for _ in range(2):  # nothing of the first call may be left
        shape_logits(out, on_device(logits, dtype), drawing, records, on_device(TOKENS[: len(rules)]), counts)
    assert not counts.any()
    assert out[len(rows) :].isnan().all()
    return to_numpy(out[: len(rows)])


def logits_of(count: int, dtype: torch.dtype = torch.float32) -> np.ndarray:
    return rounded(np.random.default_rng(count).normal(0, 3, (count, VOCAB_SIZE)).astype(np.float32), dtype)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(),
        Rules(30, STRENGTHS),
        Rules(200, (0.8, 0.0, 0.0)),
        Rules(0, (1.0, 0.0, 1.5)),
        Rules(stops_from=10, masks=(EARLY, LATE)),
        Rules(stops_from=500, masks=([7], LATE)),
        Rules(biases=BIASES),
        EVERYTHING,
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [1, 54, 55, 400])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_the_bits_are_those_of_the_reference(rules: Rules, length: int, kind: str) -> None:
    logits = logits_of(1, DTYPES[kind])
    found = run(logits, [rules], [0], [length], DTYPES[kind])
    np.testing.assert_array_equal(found[0], expected_of(logits[0], rules, TOKENS[0], length))


def test_rows_stand_in_any_order_and_padding_has_no_rules() -> None:
    rules = [EVERYTHING, Rules(), Rules(9, STRENGTHS), Rules(stops_from=3, masks=([1], LATE))]
    rows, lengths = [2, -1, 0, 3, 1], [77, 40, 300, 3, 12]
    logits = logits_of(len(rows))
    found = run(logits, rules, rows, lengths)
    for entry, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        own = rules[row] if row >= 0 else Rules()
        np.testing.assert_array_equal(found[entry], expected_of(logits[entry], own, TOKENS[row], length))


def test_as_many_biases_as_may_be() -> None:
    biases = {token: 0.5 * token for token in range(VOCAB_SIZE)}
    logits = logits_of(1)
    found = run(logits, [Rules(biases=biases)], [0], [5])
    np.testing.assert_array_equal(found[0], expected_of(logits[0], Rules(biases=biases), TOKENS[0], 5))


def test_what_is_no_number_is_seen_behind_a_mask() -> None:
    logits = logits_of(3)
    logits[0, 6], logits[1, 6], logits[2, 6] = np.nan, np.inf, -np.inf
    masks = ([5], [5])
    found = run(logits, [Rules(masks=masks, stops_from=3)] * 3, [0, 1, 2], [4, 4, 4])
    assert np.isnan(found[0, 6]) and found[1, 6] == np.inf
    assert (found[2, 6:] == -np.inf).all() and found[2, 5] == logits[2, 5]
