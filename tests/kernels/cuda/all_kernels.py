"""Every kernel of a step, built for Hopper with the shapes of the models that are measured.

A process of its own, because elsewhere in the tests kernels are interpreted: `python -m tests.kernels.cuda.all_kernels`
prints a line of JSON for each kernel, and nothing is computed. What an interpreter takes and a compiler does not, shows
here, and so do registers that did not suffice.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.models import SHAPES
from pagoda.kernels.cuda.activation import gated, quantize
from pagoda.kernels.cuda.decode_attention import decode_attention, decode_workspace
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from pagoda.kernels.cuda.fixed_attention import fixed_attention, split_workspace
from pagoda.kernels.cuda.fixed_linear import fixed_linear, fixed_workspace
from pagoda.kernels.cuda.narrow_linear import NarrowMatrix, empty_narrow, row_room
from pagoda.kernels.cuda.norm import add_rms_norm, rms_norm
from pagoda.kernels.cuda.prefill_attention import prefill_attention
from pagoda.kernels.cuda.rope_write import FreshHeads, HeadNorms, rope_write
from pagoda.kernels.cuda.row_linear import row_linear
from pagoda.kernels.cuda.rows import advance, apply_edits, gather_table, gather_tokens
from pagoda.kernels.cuda.sampling import Borders, DrawTensors, sample_tokens, sampling_workspace
from pagoda.kernels.cuda.sampling_borders import find_borders
from pagoda.kernels.cuda.sampling_candidates import candidate_lists
from pagoda.kernels.cuda.sampling_rules import NUM_SCORES, DrawingRows, record_width, shape_logits
from pagoda.kernels.cuda.sampling_scores import SCORES_WIDTH, score_scratch, score_tokens
from pagoda.kernels.cuda.sampling_typical import keep_typical
from pagoda.kernels.cuda.shared_attention import SharedRows, num_shared_slots, shared_attention
from pagoda.kernels.cuda.small_linear import linear_workspace, small_linear
from pagoda.kernels.cuda.tiles import PageTiles
from tests.kernels.cuda.hopper import Built, kernels_of, measured

BF16, FP8, FLOAT, INT = torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.int32
CPU = torch.device("cpu")
PAGE_SIZE, NUM_PAGES = 64, 8
CONTEXT = 4096
ROWS = 256
EPSILON, SCALE = 1e-5, 0.1
FEW_TOKENS = 40_000  # of a vocabulary: a head that fits the memory of a small machine

Launch = Callable[[], Any]


@dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    inner: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    has_head_norms: bool

    @classmethod
    def of(cls, name: str, has_head_norms: bool = False) -> Shape:
        config = SHAPES[name]
        hidden, num_heads = config["hidden_size"], config["num_attention_heads"]
        return cls(
            name=name,
            hidden=hidden,
            inner=config["intermediate_size"],
            num_heads=num_heads,
            num_kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim", hidden // num_heads),
            vocab_size=config["vocab_size"],
            has_head_norms=has_head_norms,
        )

    @property
    def num_in_heads(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


def new(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def whole_numbers(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=INT)


def by_token(shape: Shape) -> Iterator[tuple[str, Launch]]:
    x, weight = new(ROWS, shape.hidden), new(shape.hidden, dtype=FLOAT)
    both, gate = new(ROWS, 2 * shape.inner), new(ROWS, shape.inner)
    gates, ups = both[:, : shape.inner], both[:, shape.inner :]
    yield "norm", partial(rms_norm, x, x, weight, EPSILON)
    yield "sum and norm", partial(add_rms_norm, x, x, x, x, weight, EPSILON)
    yield "gate", partial(gated, gate, gates, ups)
    x_bytes, gate_bytes, scales = new(*x.shape, dtype=FP8), new(*gate.shape, dtype=FP8), new(ROWS, dtype=FLOAT)
    yield "sum and norm to fp8", partial(add_rms_norm, x_bytes, x, x, x, weight, EPSILON, 0.0, scales)
    yield "gate to fp8", partial(gated, gate_bytes, gates, ups, False, scales)
    yield "rounding to fp8", partial(quantize, x_bytes, scales, x)


def of_one_row(shape: Shape) -> Iterator[tuple[str, Launch]]:
    x, heads, gate = new(1, shape.hidden), new(1, shape.num_in_heads), new(1, shape.inner)
    norm = {"norm": new(shape.hidden, dtype=FLOAT), "epsilon": EPSILON}
    for dtype in (BF16, FP8):
        weight = partial(new, dtype=dtype)
        row = partial(row_linear, scales=new(2 * shape.inner, dtype=FLOAT) if dtype == FP8 else None)
        yield f"heads of a row, {dtype}", partial(row, heads, x, weight(shape.num_in_heads, shape.hidden), **norm)
        gates = weight(2 * shape.inner, shape.hidden)
        yield f"gate of a row, {dtype}", partial(row, gate, x, gates, **norm, gated=True)
        yield f"sum of a row, {dtype}", partial(row, x, gate, weight(shape.hidden, shape.inner), residual=x)
    logits, head = new(1, FEW_TOKENS), new(FEW_TOKENS, shape.hidden)
    yield "logits of a row", partial(row_linear, logits, x, head, **norm)


def of_few_rows(shape: Shape) -> Iterator[tuple[str, Launch]]:
    workspace = linear_workspace(shape.inner, 64, CPU)
    weight, scales = new(shape.hidden, shape.inner, dtype=FP8), new(shape.hidden, dtype=FLOAT)
    for num_rows in (1, 16):
        x, x_scales = new(num_rows, shape.inner, dtype=FP8), new(num_rows, dtype=FLOAT)
        where = (new(num_rows, shape.hidden), x, weight, workspace)
        yield f"{num_rows} rows in fp8", partial(small_linear, *where, x_scales, scales)


def of_narrow_numbers(shape: Shape) -> Iterator[tuple[str, Launch]]:
    room = torch.empty(row_room(shape.inner), dtype=INT)
    workspace = dataclasses.replace(linear_workspace(shape.inner, 1, CPU), row=room)
    norm = {"norm": new(shape.hidden, dtype=FLOAT), "epsilon": EPSILON}
    x, gate = new(1, shape.hidden), new(1, shape.inner)
    for bits in (8, 4):
        down = NarrowMatrix(*empty_narrow(shape.hidden, shape.inner, bits, CPU), bits=bits, num_in=shape.inner)
        gates = NarrowMatrix(*empty_narrow(2 * shape.inner, shape.hidden, bits, CPU), bits=bits, num_in=shape.hidden)
        yield f"wide again, {bits} bits", partial(down.widen, new(shape.hidden, shape.inner))
        yield f"sum of a row, {bits} bits", partial(down.multiply_row, x, gate, workspace, x)
        yield f"gate of a row, {bits} bits", partial(gates.multiply_row, gate, x, workspace, **norm, gated=True)


def of_heads(shape: Shape, dtype: torch.dtype) -> Iterator[tuple[str, Launch]]:
    """With pages of this type."""
    num_heads, num_kv_heads, head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
    pages = tuple(new(NUM_PAGES, PAGE_SIZE, num_kv_heads, head_dim, dtype=dtype) for _ in range(2))
    tiles = PageTiles(*pages)
    norm = new(head_dim, dtype=FLOAT)
    norms = HeadNorms(norm, norm, EPSILON, 0.0) if shape.has_head_norms else None
    cosines, joined = new(CONTEXT, head_dim // 2, dtype=FLOAT), new(ROWS, shape.num_in_heads)
    numbers, table = whole_numbers(ROWS), whole_numbers(ROWS, CONTEXT // PAGE_SIZE)
    q, out = (new(ROWS, num_heads, head_dim) for _ in range(2))
    turning = (cosines, cosines, False, norms)
    yield "heads to pages", partial(rope_write, q, *pages, joined, *turning, numbers, numbers, numbers, table)
    fresh = FreshHeads(joined, *turning)
    workspace = decode_workspace(
        ROWS, num_heads, num_kv_heads, head_dim, CPU, num_shared_slots(ROWS, num_heads, num_kv_heads)
    )
    plan, plan_in_window = (DecodePlan.of(PlanKind(num_kv_heads, window), ROWS, CPU) for window in (0, 99))
    yield "plan", partial(plan.make, numbers)
    yield "plan, shared", partial(plan.make, numbers, numbers)
    for count in (1, 8, ROWS):
        decode = partial(decode_attention, out[:count], q[:count], *pages, table[:count], page_tiles=tiles)
        yield f"decode of {count}", partial(decode, plan, SCALE, workspace)
        yield f"decode of {count}, fresh heads", partial(decode, plan, SCALE, workspace, fresh=fresh)
        yield f"decode of {count}, window", partial(decode, plan_in_window, SCALE, workspace)
    for count in (16, 128, ROWS):
        group = SharedRows(numbers[:count], numbers[:count], whole_numbers(2))
        where = (out[:count], q[:count], *pages, table, plan, group, SCALE, workspace)
        yield f"{count} rows that share", partial(shared_attention, *where, page_tiles=tiles)
    for count in (64, 8192):
        prompts = (new(count, num_heads, head_dim), new(count, num_heads, head_dim), *pages, table[:4], numbers[:5])
        prefill = partial(prefill_attention, *prompts, numbers[:4], count // 4, SCALE)
        yield f"prompts of {count}, whole tiles", partial(prefill, 0, page_tiles=tiles)
        yield f"prompts of {count}, gathered", partial(prefill, 0)
        yield f"prompts of {count}, window", partial(prefill, 99, page_tiles=tiles)


def of_fixed_sums(shape: Shape) -> Iterator[tuple[str, Launch]]:
    """Those of the deterministic mode."""
    for dtype in (BF16, FP8):
        weight = new(shape.hidden, shape.inner, dtype=dtype)
        workspace = fixed_workspace([weight], CPU)
        for count in (1, ROWS):
            scales = (new(count, dtype=FLOAT), new(shape.hidden, dtype=FLOAT)) if dtype == FP8 else (None, None)
            where = (new(count, shape.hidden), new(count, shape.inner, dtype=dtype), weight, workspace)
            yield f"fixed sums, {count} rows, {dtype}", partial(fixed_linear, *where, *scales)
    pages = [new(NUM_PAGES, PAGE_SIZE, shape.num_kv_heads, shape.head_dim) for _ in range(2)]
    out, q = (new(ROWS, shape.num_heads, shape.head_dim) for _ in range(2))
    numbers, table = whole_numbers(ROWS + 1), whole_numbers(ROWS, CONTEXT // PAGE_SIZE)
    attend = partial(fixed_attention, out, q, *pages, table, numbers, numbers[:ROWS], SCALE, 0)
    workspace = split_workspace(ROWS, shape.num_heads, shape.num_kv_heads, shape.head_dim, CONTEXT, CPU)
    yield "fixed attention", attend
    yield "fixed attention, apart", partial(attend, workspace, 4)


def of_tokens(shape: Shape) -> Iterator[tuple[str, Launch]]:
    numbers, reals = whole_numbers(ROWS), new(ROWS, dtype=FLOAT)
    many = whole_numbers(ROWS, CONTEXT)
    gather = partial(gather_tokens, *(numbers,) * 6, many, numbers)
    yield "tokens of rows", partial(gather, 1)
    yield "tokens of prompts", partial(gather, 512)
    yield "tables", partial(gather_table, many, many, numbers, numbers, PAGE_SIZE)
    yield "edits", partial(apply_edits, many, whole_numbers(ROWS, 3), numbers, 64)
    yield "advance", partial(advance, many, *(numbers,) * 5, shape.vocab_size)
    draws = DrawTensors(reals, torch.zeros(ROWS, dtype=torch.int64), numbers, numbers)
    borders = Borders(reals, numbers)
    for count in (1, ROWS):
        logits, workspace = new(count, shape.vocab_size), sampling_workspace(count, shape.vocab_size, CPU)
        sample = partial(sample_tokens, numbers, numbers, logits, workspace)
        yield f"best of {count}", sample
        yield f"draws of {count}", partial(sample, draws)
        yield f"draws of {count} within borders", partial(sample, draws, borders)
    lists, minima = candidate_lists(ROWS, shape.vocab_size, CPU), torch.zeros(ROWS, dtype=torch.float64)
    yield "borders", partial(find_borders, borders, logits, draws, numbers, reals, minima, lists=lists)
    records, scratch = whole_numbers(ROWS, record_width(shape.vocab_size)), score_scratch(ROWS, shape.vocab_size, CPU)
    copy, counts = new(*logits.shape, dtype=FLOAT), whole_numbers(*logits.shape)
    yield "rules", partial(shape_logits, copy, logits, DrawingRows(numbers, numbers), records, many, counts)
    yield "draws of float copies", partial(sample_tokens, numbers, numbers, copy, workspace, draws, borders)
    yield "borders in float copies", partial(find_borders, borders, copy, draws, numbers, reals, minima, lists=lists)
    yield "typical", partial(keep_typical, copy, reals, borders, reals)
    scores = whole_numbers(ROWS, SCORES_WIDTH)
    yield "scores", partial(score_tokens, scores, logits, numbers, numbers, records[:, NUM_SCORES.value], scratch)


def every_kernel() -> Iterator[tuple[str, Built]]:
    for shape in (Shape.of("8b"), Shape.of("0.6b", has_head_norms=True)):
        kinds = [by_token(shape), of_one_row(shape), of_few_rows(shape), of_narrow_numbers(shape), of_tokens(shape)]
        kinds += [of_fixed_sums(shape), *(of_heads(shape, dtype) for dtype in (BF16, FP8))]
        for name, launch in itertools.chain(*kinds):
            for kernel in kernels_of(launch):
                yield f"{shape.name}: {name}", measured(kernel)


if __name__ == "__main__":
    for purpose, one in every_kernel():
        print(json.dumps({"purpose": purpose, **dataclasses.asdict(one)}), flush=True)
