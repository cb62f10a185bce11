from __future__ import annotations

import numpy as np

from pagoda.kernels.reference.sampling.bias import apply_allowed, apply_banned, apply_bias
from pagoda.kernels.sampling import BiasCells, TokenCells

NEVER = -np.inf


def cells(*pairs: tuple[int, int]) -> TokenCells:
    columns = np.array(pairs, dtype=np.int32).T
    return TokenCells(columns[0], columns[1])


def grid() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


def test_allowed_restricts_the_rows_it_names() -> None:
    logits = grid()
    apply_allowed(logits, cells((0, 1), (2, 0), (2, 3)))
    assert logits.tolist() == [[NEVER, 1, NEVER, NEVER], [4, 5, 6, 7], [8, NEVER, NEVER, 11]]


def test_banned() -> None:
    logits = grid()
    apply_banned(logits, cells((0, 3), (1, 0), (1, 1)))
    assert logits.tolist() == [[0, 1, 2, NEVER], [NEVER, NEVER, 6, 7], [8, 9, 10, 11]]


def test_bias_adds() -> None:
    logits = grid()
    where = cells((0, 0), (2, 3))
    apply_bias(logits, BiasCells(where.rows, where.token_ids, np.array([-5, 2.5], dtype=np.float32)))
    assert logits[0].tolist() == [-5, 1, 2, 3] and logits[2].tolist() == [8, 9, 10, 13.5]


def test_bias_does_not_bring_a_banned_token_back() -> None:
    logits = grid()
    where = cells((0, 0))
    apply_banned(logits, where)
    apply_bias(logits, BiasCells(where.rows, where.token_ids, np.array([100], dtype=np.float32)))
    assert np.isneginf(logits[0, 0])
