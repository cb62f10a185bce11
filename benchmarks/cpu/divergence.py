"""How far one engine's next-token distributions lie from another's: plain functions over logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WindowScores:
    """For each position of a window of text."""

    divergence: npt.NDArray[np.float64]
    """KL(reference || other), in nats."""
    agrees: npt.NDArray[np.bool_]
    """Both have the same most likely token."""
    surprise: npt.NDArray[np.float64]
    """-log p of the token that really follows; one fewer than positions."""


def log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def score(reference: Logits, other: Logits, token_ids: npt.NDArray[np.int32], step: int = 64) -> WindowScores:
    """Scores of one window; a few rows at a time, since a row has as many float64 as the vocabulary tokens."""
    divergence, agrees, surprise = [], [], []
    for first in range(0, len(reference), step):
        rows = slice(first, first + step)
        ours, theirs = log_softmax(reference[rows]), log_softmax(other[rows])
        divergence.append((np.exp(ours) * (ours - theirs)).sum(axis=-1))
        agrees.append(reference[rows].argmax(axis=-1) == other[rows].argmax(axis=-1))
        following = token_ids[first + 1 : first + 1 + len(theirs)]
        surprise.append(-theirs[np.arange(len(following)), following])
    return WindowScores(np.concatenate(divergence), np.concatenate(agrees), np.concatenate(surprise))


@dataclass(frozen=True)
class Summary:
    num_tokens: int
    mean: float
    standard_error: float
    median: float
    percentile_99: float
    agreement: float
    perplexity: float


def summarize(windows: list[WindowScores]) -> Summary:
    divergence = np.concatenate([window.divergence for window in windows])
    means = [window.divergence.mean() for window in windows]  # neighbours are not independent, windows nearly are
    return Summary(
        num_tokens=len(divergence),
        mean=float(divergence.mean()),
        standard_error=float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else 0.0,
        median=float(np.median(divergence)),
        percentile_99=float(np.percentile(divergence, 99)),
        agreement=float(np.concatenate([window.agrees for window in windows]).mean()),
        perplexity=float(np.exp(np.concatenate([window.surprise for window in windows]).mean())),
    )
