"""The records of the `sample` operator: what a step asks of the sampler, and what it gives back.

One entry stands for one row of logits. A feature that no row of the step uses is None and costs nothing;
a step in which every row is greedy is one argmax.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
SeedArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TokenCells:
    """Cells (rows[i], token_ids[i]) of the logits. Rows ascend; no cell occurs twice."""

    rows: IntArray
    token_ids: IntArray


@dataclass(frozen=True, eq=False)
class BiasCells:
    """Cells of the logits and what is added to each. Rows ascend; no cell occurs twice."""

    rows: IntArray
    token_ids: IntArray
    values: FloatArray


@dataclass(frozen=True, eq=False)
class Penalties:
    """Every token a penalised row has seen, in its prompt or its output, with how often it stands in the output.

    Rows ascend; no cell occurs twice. The three strengths have one entry a row of logits; a row without penalties
    owns no cell.
    """

    rows: IntArray
    token_ids: IntArray
    output_counts: IntArray
    repetition: FloatArray
    presence: FloatArray
    frequency: FloatArray


@dataclass(frozen=True, eq=False)
class Draws:
    """What a sampled row needs. A row of temperature 0 is greedy, and its other entries are not read.

    `positions` are those of the tokens to be drawn: the number of tokens that stand before each. A noise value depends
    on (seed, sample index, position, token id) and on nothing else in the step.
    top_k = 0, top_p = 1, min_p = 0 and typical_p = 1 leave a row as it is.
    """

    temperature: FloatArray
    seeds: SeedArray
    sample_indices: IntArray
    positions: IntArray
    top_k: IntArray | None = None
    top_p: FloatArray | None = None
    min_p: FloatArray | None = None
    typical_p: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class SamplingBatch:
    """`allowed` restricts each row it names to its cells; a row it does not name may use the whole vocabulary.

    `num_logprobs` is -1 where a row wants none, 0 for the chosen token alone, k for the k best besides.
    """

    num_rows: int
    draws: Draws | None = None
    allowed: TokenCells | None = None
    banned: TokenCells | None = None
    bias: BiasCells | None = None
    penalties: Penalties | None = None
    num_logprobs: IntArray | None = None


@dataclass(frozen=True, eq=False)
class TokenLogprobs:
    """Log-probabilities under the model's own distribution, before penalties and temperature.

    Entry i belongs to the row rows[i] of the logits. Ranks start at 1. top_token_ids[i, :num_top[i]] are the best
    tokens, best first (equal values: lower id first); beyond that, ids are -1 and values -inf.
    """

    rows: IntArray
    chosen: FloatArray
    ranks: IntArray
    num_top: IntArray
    top_token_ids: IntArray
    top_values: FloatArray


@dataclass(frozen=True, eq=False)
class SampledTokens:
    token_ids: IntArray
    logprobs: TokenLogprobs | None = None
    is_broken: npt.NDArray[np.bool_] | None = None
    """By row: the logits were not all finite, and the token means nothing. None: all rows are sound."""
