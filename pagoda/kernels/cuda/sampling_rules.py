"""What rows allow, ban, favour and penalise, applied to a copy of their logits in the order of the reference.

A row keeps a record on the device from its start to its end, so that a step brings nothing but which rows draw. Which
tokens it has seen lies there already: its own tokens are counted in scratch over the vocabulary, and whoever takes a
count away applies the penalties of that token, so that each is penalised once however often it stands there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.core.sampling_params import MAX_LOGIT_BIAS

BLOCK = 2048
TOKEN_BLOCK = 1024
PARTS = 8  # programs that share the tokens of a row
MASK_BITS = 32

# The head of a record. All zeros: the row asks for nothing.
IS_PENALISED = tl.constexpr(0)
NUM_PROMPT_TOKENS = tl.constexpr(1)
REPETITION = tl.constexpr(2)  # the bits of three float32
PRESENCE = tl.constexpr(3)
FREQUENCY = tl.constexpr(4)
STOPS_FROM = tl.constexpr(5)  # 1 + the first position at which its stop tokens may be drawn; 0: it has no masks
NUM_BIASES = tl.constexpr(6)
NUM_SCORES = tl.constexpr(7)  # 1 + how many of the best tokens it wants to know; 0: no log-probabilities
HEAD = tl.constexpr(8)
# Behind it: ids and values of biases, then a bit a token, whether it may be drawn: before the row may stop, and after.
BIAS_VALUES = tl.constexpr(8 + MAX_LOGIT_BIAS)
MASKS = tl.constexpr(8 + 2 * MAX_LOGIT_BIAS)
MOST_BIASES = tl.constexpr(triton.next_power_of_2(MAX_LOGIT_BIAS))

SEEN = tl.constexpr(1 << 30)  # in the scratch: the token stands in the prompt


def mask_words(vocab_size: int) -> int:
    """Of 32 bits, for a bit a token."""
    return triton.cdiv(vocab_size, MASK_BITS)


def record_width(vocab_size: int) -> int:
    return int(MASKS.value) + 2 * mask_words(vocab_size)


@dataclass(frozen=True, eq=False)
class DrawingRows:
    """Which row of the worker each row of logits belongs to, and how many tokens that has. A row of -1 is padding."""

    rows: torch.Tensor  # [R] int32
    positions: torch.Tensor  # [R] int32


def shape_logits(
    out: torch.Tensor,
    logits: torch.Tensor,
    drawing: DrawingRows,
    records: torch.Tensor,
    token_ids: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """out[r] = logits[r] as the record of its row wants it, in float32; NaN and infinity stay what they are.

    `records` [rows, record_width] and `token_ids` [rows, tokens] are those of the worker, int32. `counts` is scratch of
    the shape of `out`, int32, and all zeros between calls.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1 and out.is_contiguous() and counts.is_contiguous()
    assert num_rows <= len(out) and num_rows <= len(counts) and out.shape[1] == counts.shape[1] == vocab_size
    of_rows = (drawing.rows, drawing.positions, records, records.stride(0))
    _mask[(triton.cdiv(vocab_size, BLOCK), num_rows)](
        out, logits, logits.stride(0), vocab_size, *of_rows, mask_words(vocab_size), BLOCK=BLOCK, num_warps=4
    )
    sizes = {"BLOCK": TOKEN_BLOCK, "num_warps": 4}
    tokens = (token_ids, token_ids.stride(0))
    _favour_and_count[(PARTS, num_rows)](out, counts, vocab_size, *of_rows, *tokens, **sizes)
    _penalise[(PARTS, num_rows)](out, counts, vocab_size, *of_rows, *tokens, **sizes)


@triton.jit
def _mask(
    out, logits, logits_row, vocab_size, rows, positions, records, record_stride, num_words, BLOCK: tl.constexpr
):  # fmt: skip
    entry = tl.program_id(1).to(tl.int64)
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = tokens < vocab_size
    values = tl.load(logits + entry * logits_row + tokens, mask=inside, other=0.0).to(tl.float32)
    row = tl.load(rows + entry).to(tl.int64)
    record = records + row * record_stride
    stops_from = tl.load(record + STOPS_FROM, mask=row >= 0, other=0)
    if stops_from > 0:
        may_stop = (tl.load(positions + entry) >= stops_from - 1).to(tl.int32)
        words = tl.load(record + MASKS + may_stop * num_words + tokens // 32, mask=inside, other=0)
        is_kept = ((words >> (tokens % 32)) & 1) == 1
        is_bad = (values != values) | (values == float("inf"))  # to be seen by whoever chooses
        values = tl.where(is_kept | is_bad, values, -float("inf"))
    tl.store(out + entry * vocab_size + tokens, values, mask=inside)


@triton.jit
def _favour_and_count(
    out, counts, vocab_size, rows, positions, records, record_stride, token_ids, token_stride, BLOCK: tl.constexpr
):  # fmt: skip
    part, entry = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = tl.load(rows + entry).to(tl.int64)
    if row >= 0:
        record = records + row * record_stride
        num_biases = tl.load(record + NUM_BIASES)
        if (part == 0) & (num_biases > 0):
            places = tl.arange(0, MOST_BIASES)
            inside = places < num_biases
            cells = out + entry * vocab_size + tl.load(record + HEAD + places, mask=inside, other=0)
            biases = tl.load(record + BIAS_VALUES + places, mask=inside, other=0).to(tl.float32, bitcast=True)
            tl.store(cells, tl.load(cells, mask=inside, other=0.0) + biases, mask=inside)
        if tl.load(record + IS_PENALISED) != 0:
            num_prompt_tokens, length = tl.load(record + NUM_PROMPT_TOKENS), tl.load(positions + entry)
            for start in range(part * BLOCK, length, tl.num_programs(0) * BLOCK):
                places = start + tl.arange(0, BLOCK)
                tokens = tl.load(token_ids + row * token_stride + places, mask=places < length, other=0)
                cells = counts + entry * vocab_size + tokens
                tl.atomic_or(cells, SEEN, mask=places < tl.minimum(length, num_prompt_tokens), sem="relaxed")
                tl.atomic_add(cells, 1, mask=(places >= num_prompt_tokens) & (places < length), sem="relaxed")


@triton.jit
def _penalise(
    out, counts, vocab_size, rows, positions, records, record_stride, token_ids, token_stride, BLOCK: tl.constexpr
):  # fmt: skip
    part, entry = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = tl.load(rows + entry).to(tl.int64)
    if row >= 0:
        record = records + row * record_stride
        if tl.load(record + IS_PENALISED) != 0:
            repetition = tl.load(record + REPETITION).to(tl.float32, bitcast=True)
            presence = tl.load(record + PRESENCE).to(tl.float32, bitcast=True)
            frequency = tl.load(record + FREQUENCY).to(tl.float32, bitcast=True)
            length = tl.load(positions + entry)
            for start in range(part * BLOCK, length, tl.num_programs(0) * BLOCK):
                places = start + tl.arange(0, BLOCK)
                inside = places < length
                cells = entry * vocab_size + tl.load(token_ids + row * token_stride + places, mask=inside, other=0)
                found = tl.atomic_xchg(counts + cells, 0, mask=inside, sem="relaxed")
                is_first = inside & (found != 0)
                num_in_output = found & (SEEN - 1)
                values = tl.load(out + cells, mask=is_first, other=0.0)
                values = tl.where(values > 0, tl.div_rn(values, repetition), values * repetition)
                # The frequency counts in float64, as it does in NumPy, which keeps the bits of the reference.
                values = (values.to(tl.float64) - frequency.to(tl.float64) * num_in_output.to(tl.float64)).to(
                    tl.float32
                )
                values -= tl.where(num_in_output > 0, presence, 0.0)
                tl.store(out + cells, values, mask=is_first)
