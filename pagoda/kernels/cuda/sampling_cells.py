"""What touches single logits: allowed and banned tokens, biases and penalties, in place, in the order of the reference.

Few cells of few rows change, so these are torch's own gathers and scatters. Cells come as `rows` and `token_ids`, int32
on the device; no cell occurs twice in a call.
"""

from __future__ import annotations

import torch

LOWEST = -float("inf")


def keep_allowed(logits: torch.Tensor, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
    """Rule out all tokens of the rows that have cells, but those."""
    kept = logits[rows, token_ids]
    logits[rows] = LOWEST
    logits[rows, token_ids] = kept


def rule_out(logits: torch.Tensor, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
    logits[rows, token_ids] = LOWEST


def add_bias(logits: torch.Tensor, rows: torch.Tensor, token_ids: torch.Tensor, values: torch.Tensor) -> None:
    logits[rows, token_ids] += values


def apply_penalties(
    logits: torch.Tensor,
    rows: torch.Tensor,
    token_ids: torch.Tensor,
    output_counts: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
) -> None:
    """`Penalties` of kernels/sampling.py; the three strengths have one entry a row of logits. float32 logits.

    The frequency counts in float64, as it does in NumPy, which keeps the bits of the reference.
    """
    values, own_repetition = logits[rows, token_ids], repetition[rows]
    values = torch.where(values > 0, values / own_repetition, values * own_repetition)
    values = (values.double() - frequency[rows].double() * output_counts).float()
    values -= presence[rows] * (output_counts > 0)
    logits[rows, token_ids] = values
