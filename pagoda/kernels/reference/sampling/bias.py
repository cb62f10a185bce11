"""What a request allows, bans and favours, applied in place to the logits."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.sampling import BiasCells, FloatArray, TokenCells


def apply_allowed(logits: FloatArray, allowed: TokenCells) -> None:
    kept = logits[allowed.rows, allowed.token_ids]
    logits[np.unique(allowed.rows)] = -np.inf
    logits[allowed.rows, allowed.token_ids] = kept


def apply_banned(logits: FloatArray, banned: TokenCells) -> None:
    logits[banned.rows, banned.token_ids] = -np.inf


def apply_bias(logits: FloatArray, bias: BiasCells) -> None:
    logits[bias.rows, bias.token_ids] += bias.values
