"""Time the kernels of pagoda/kernels/cuda on the GPU at hand, each against the ceiling that binds it.

    python benchmarks/gpu/kernels.py [section ...] [--variants] [--pages fp8] [--once] [--shard I/N]

One line a case: microseconds, the bytes that must be read and the operations that must be done over that time, and the
share of the larger ceiling. `--once` runs every launch once and times nothing: several such processes, a shard each,
fill the compile cache. Launches are captured in a CUDA graph and go round several sets of inputs, together larger than
the second cache.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pagoda.kernels.cuda.decode_attention import DecodeTile, decode_attention, decode_workspace
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from pagoda.kernels.cuda.fixed_attention import fixed_attention, split_workspace
from pagoda.kernels.cuda.fixed_linear import FixedTile, fixed_linear, fixed_workspace
from pagoda.kernels.cuda.prefill_attention import PrefillTile, prefill_attention
from pagoda.kernels.cuda.sampling import Borders, DrawTensors, sample_tokens, sampling_workspace
from pagoda.kernels.cuda.sampling_borders import find_borders
from pagoda.kernels.cuda.sampling_candidates import candidate_lists
from pagoda.kernels.cuda.sampling_rules import MASKS, NUM_SCORES, DrawingRows, record_width, shape_logits
from pagoda.kernels.cuda.sampling_scores import BEST_SCORES, SCORES_WIDTH, score_scratch, score_tokens
from pagoda.kernels.cuda.shared_attention import SharedRows, SharedTile, num_shared_slots, shared_attention
from pagoda.kernels.cuda.small_linear import LinearPlan, linear_plan, linear_workspace, small_linear
from pagoda.kernels.cuda.tiles import PageTiles

# Measured on the H200 this was tuned on, random data.
READ_BYTES_PER_SECOND = 4.1e12
BF16_FLOPS_PER_SECOND = 719e12
L2_BYTES = 60e6
REPLAYS = 20
PAGE_SIZE = 64
PAGE_TYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
SCALE = 128**-0.5

Launch = Callable[[], None]


@dataclass(frozen=True)
class Wanted:
    variants: bool
    page_type: torch.dtype
    """Of the numbers in the pages that decode, shared and prefill read."""

    @property
    def token_bytes(self) -> int:
        """Keys and values of eight heads."""
        return 2 * 8 * 128 * self.page_type.itemsize


@dataclass(frozen=True)
class Case:
    """`launches` makes the inputs, checks the result of one launch and returns one for each set of inputs."""

    section: str
    name: str
    launches: Callable[[], list[Launch]]
    num_bytes: float
    num_flops: float = 0.0


def time_launches(launches: list[Launch]) -> float:
    """Seconds a launch, the median of several replays of a graph that holds all of them."""
    for launch in launches:
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    repeats = max(1, 40 // len(launches))
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for launch in launches:
                launch()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / (repeats * len(launches)))
    return statistics.median(times)


def num_sets(bytes_a_set: float) -> int:
    return max(1, min(8, int(3 * L2_BYTES / bytes_a_set) + 1))


def paged(
    num_rows: int, context: int, num_kv_heads: int, head_dim: int, page_type: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, ...]:
    pages_a_row = -(-context // PAGE_SIZE)
    shape = (num_rows * pages_a_row, PAGE_SIZE, num_kv_heads, head_dim)
    keys, values = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(page_type) for _ in range(2))
    table = torch.randperm(len(keys), device="cuda", dtype=torch.int32).reshape(num_rows, pages_a_row)
    return keys, values, table


def paged_rows(
    lens: list[int], num_kv_heads: int, head_dim: int, page_type: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, ...]:
    """Rows of these lengths: no more pages than they need, in any order."""
    needed = [-(-length // PAGE_SIZE) for length in lens]
    shape = (sum(needed), PAGE_SIZE, num_kv_heads, head_dim)
    keys, values = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(page_type) for _ in range(2))
    pages = torch.randperm(len(keys), device="cuda", dtype=torch.int32).split(needed)
    return keys, values, torch.nn.utils.rnn.pad_sequence(list(pages), batch_first=True)


def mixed_by_torch(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """[N, H, E] queries, the last of [C, K, E], in float32."""
    group = q.shape[1] // keys.shape[1]
    keys, values = (x.float().repeat_interleave(group, 1).transpose(0, 1) for x in (keys, values))
    scores = q.float().transpose(0, 1) @ keys.transpose(1, 2) * scale
    distance = torch.arange(len(q), device="cuda")[:, None] + keys.shape[1] - len(q)
    scores.masked_fill_(torch.arange(keys.shape[1], device="cuda") > distance, float("-inf"))
    return (scores.softmax(-1) @ values).transpose(0, 1)


def assert_near(name: str, actual: torch.Tensor, expected: torch.Tensor, limit: float) -> None:
    error = ((actual.float() - expected).norm() / expected.norm()).item()
    assert error < limit, f"{name}: error {error:.2e}"


def decode_cases(wanted: Wanted) -> Iterator[Case]:
    tiles: list[DecodeTile | None] = [None]
    if wanted.variants:
        tiles += [DecodeTile(*tile) for tile in ((16, 1, 2), (16, 1, 4), (32, 1, 3, 4, 32), (32, 1, 2, 4, 32))]
        tiles += [DecodeTile(block, 2, 3, 8, tail, in_pages=False) for block, tail in ((16, 64), (32, 64), (64, 64))]
    for lens, heads in DECODE_LENS:
        for tile in tiles:
            make = functools.partial(decode_launches, lens, heads, wanted, tile)
            name = f"{name_of(lens)}, {heads}/8 heads, {tile or 'as chosen'}"
            yield Case("decode", name, make, sum(lens) * wanted.token_bytes)


def evenly(rows: int, low: int, high: int) -> list[int]:
    """Contexts from `low` to `high`."""
    return [low + (high - low) * row // max(1, rows - 1) for row in range(rows)]


# And what differs in a batch, or is long.
DECODE_LENS = [
    (evenly(256, 300, 600), 32),
    (evenly(256, 100, 2000), 16),
    ([1024] * 64, 32),
    ([8192] * 8, 32),
    ([384], 32),
    ([384], 16),
    ([384] * 8, 32),
    ([32_768], 32),
    ([131_072], 32),
    ([100_000, *[500] * 63], 32),
    (evenly(16, 1000, 60_000), 32),
]


def name_of(lens: list[int]) -> str:
    if len(lens) > 1 and lens[0] > lens[1]:
        return f"{lens[0]:,} and {len(lens) - 1} x {lens[1]:,}"
    return f"{len(lens)} x {lens[0]:,}" + (f" to {lens[-1]:,}" if lens[-1] != lens[0] else "")


def decode_launches(lens: list[int], heads: int, wanted: Wanted, tile: DecodeTile | None) -> list[Launch]:
    rows = len(lens)
    workspace = decode_workspace(rows, heads, 8, 128, "cuda")
    context_lens = torch.tensor(lens, device="cuda", dtype=torch.int32)
    plan = DecodePlan.of(PlanKind(8), rows, "cuda")
    plan.make(context_lens)
    found: list[Launch] = []
    for _ in range(num_sets(sum(lens) * wanted.token_bytes)):
        q, out = (torch.randn((rows, heads, 128), device="cuda", dtype=torch.bfloat16) for _ in range(2))
        keys, values, table = paged_rows(lens, 8, 128, wanted.page_type)
        arguments = (out, q, keys, values, table, plan, SCALE, workspace)
        found.append(functools.partial(decode_attention, *arguments, tile=tile, page_tiles=PageTiles(keys, values)))
    found[-1]()
    check_decode(out, q, keys, values, table, context_lens)
    return found


def check_decode(out, q, keys, values, table, lens) -> None:
    keys, values = keys.float(), values.float()
    for row in (0, len(q) // 2, len(q) - 1):
        length = int(lens[row])
        flat_keys, flat_values = (x[table[row].long()].flatten(0, 1)[:length] for x in (keys, values))
        expected = mixed_by_torch(q[row : row + 1], flat_keys, flat_values, SCALE)
        assert_near("decode", out[row : row + 1], expected, 1e-2)


def shared_cases(wanted: Wanted) -> Iterator[Case]:
    tiles: list[dict[str, Any]] = [{}]
    if wanted.variants:
        for lines, warps, pieces in ((64, 4, 1), (64, 4, 2), (128, 8, 1), (128, 8, 2), (128, 4, 2)):
            tiles += [{"tile": SharedTile(lines, 64, warps, stages), "pieces": pieces} for stages in (2, 3, 4)]
        for registers, stages in itertools.product((None, 192, 168), (2, 3)):
            tiles.append({"tile": SharedTile(64, 64, 4, 3, registers), "tile_beside": DecodeTile(16, 1, stages)})
    for rows, shared_len, own in ((256, 2048, 192), (256, 512, 192), (32, 2048, 192)):
        flops = 4 * rows * shared_len * 32 * 128
        for tile in tiles:
            name = f"{rows} x {shared_len} shared + {own}, {tile or 'as chosen'}"
            make = functools.partial(shared_launches, rows, shared_len, own, wanted.page_type, tile)
            yield Case("shared", name, make, (rows * own + shared_len) * wanted.token_bytes, flops)


def shared_launches(rows: int, shared_len: int, own: int, page_type: torch.dtype, tile: dict[str, Any]) -> list[Launch]:
    workspace = decode_workspace(rows, 32, 8, 128, "cuda", max(2, num_shared_slots(rows, 32, 8) // rows) * rows)
    q, out = (torch.randn((rows, 32, 128), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    keys, values, table = paged(rows, shared_len + own, 8, 128, page_type)
    table[:, : shared_len // PAGE_SIZE] = table[0, : shared_len // PAGE_SIZE].clone()
    members = torch.arange(rows, device="cuda", dtype=torch.int32)
    lens, shared_lens = (torch.full_like(members, length) for length in (shared_len + own, shared_len))
    group = SharedRows(shared_lens, members, torch.tensor([0, rows], device="cuda", dtype=torch.int32))
    plan = DecodePlan.of(PlanKind(8), rows, "cuda")
    plan.make(lens, shared_lens)
    arguments = (out, q, keys, values, table, plan, group, SCALE, workspace)
    launch = functools.partial(shared_attention, *arguments, page_tiles=PageTiles(keys, values), **tile)
    launch()
    check_decode(out, q, keys, values, table, lens)
    return [launch]


def prefill_cases(wanted: Wanted) -> Iterator[Case]:
    tiles: list[PrefillTile | None] = [None]
    if wanted.variants:
        shapes = ((128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 128, 4, 3), (256, 64, 8, 3))
        tiles += [PrefillTile(*shape) for shape in shapes]
        tiles += [PrefillTile(128, 64, 8, 2, most_registers=128), PrefillTile(64, 64, 4, 3, most_registers=168)]
    for rows, new, cached in ((1, 8192, 0), (1, 1024, 0), (16, 512, 0), (4, 512, 4096)):
        flops = 4 * rows * (new * new / 2 + new * cached) * 128 * 32
        num_bytes = rows * (new * 32 * 256 * 2 + (new + cached) * wanted.token_bytes)
        for whole in (False, True):
            for tile in tiles:
                name = f"{rows} x {new} after {cached}, {'whole tiles' if whole else 'gathered'}, {tile or 'as chosen'}"
                make = functools.partial(prefill_launches, rows, new, cached, wanted.page_type, whole, tile)
                yield Case("prefill", name, make, num_bytes, flops)


def prefill_launches(
    rows: int, new: int, cached: int, page_type: torch.dtype, whole: bool, tile: PrefillTile | None
) -> list[Launch]:
    keys, values, table = paged(rows, new + cached, 8, 128, page_type)
    q, out = (torch.randn((rows * new, 32, 128), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    starts = torch.arange(rows + 1, device="cuda", dtype=torch.int32) * new
    lens = torch.full((rows,), new + cached, device="cuda", dtype=torch.int32)
    by_row = [x.float()[table.flatten()].reshape(rows, -1, 8, 128) for x in (keys, values)]
    arguments = (out, q, keys, values, table, starts, lens, new, SCALE, 0)
    page_tiles = PageTiles(keys, values) if whole else None
    launch = functools.partial(prefill_attention, *arguments, tile=tile, page_tiles=page_tiles)
    launch()
    flat_keys, flat_values = (x[-1, : new + cached] for x in by_row)
    count = min(new, 512)  # of the last row
    assert_near("prefill", out[-count:], mixed_by_torch(q[-count:], flat_keys, flat_values, SCALE), 1e-2)
    return [launch]


MATRICES = {
    "0.6B": {
        "qkv": (4096, 1024),
        "o": (1024, 2048),
        "gate_up": (6144, 1024),
        "down": (1024, 3072),
        "head": (151936, 1024),
    },
    "8B": {
        "qkv": (6144, 4096),
        "o": (4096, 4096),
        "gate_up": (28672, 4096),
        "down": (4096, 14336),
        "head": (128256, 4096),
    },
}


def linear_cases(wanted: Wanted) -> Iterator[Case]:
    """The matrices of Qwen3-0.6B and Llama-3.1-8B; the output heads stay bf16."""
    for model, matrices in MATRICES.items():
        for matrix, (num_out, num_in) in matrices.items():
            for kind, rows in (("bf16", 1), ("bf16", 8), ("fp8", 1), ("fp8", 8)):
                if kind == "fp8" and (model == "0.6B" or matrix == "head"):
                    continue
                width = 2 if kind == "bf16" else 1
                plans = [linear_plan(rows, num_out, num_in, width)]
                if wanted.variants:
                    plans += linear_variants(rows, num_out, num_in, width)
                name = f"{model} {matrix} {kind}, {rows} rows"
                make = functools.partial(linear_launches, rows, num_out, num_in, kind)
                if kind == "bf16":
                    yield Case("linear", f"{name}, torch", functools.partial(make, None, False), num_out * num_in * 2)
                for plan, early in itertools.product(plans, (False, True)):
                    label = f"{name}, {plan}{', early' if early else ''}"
                    yield Case("linear", label, functools.partial(make, plan, early), num_out * num_in * width)


def linear_variants(rows: int, num_out: int, num_in: int, width: int) -> list[LinearPlan]:
    if rows > 1:
        plans = []
        for programs in (132, 264):
            stretches = max(1, min(num_in // 256, round(programs * 64 / num_out)))
            plans += [LinearPlan(64, 128, stretches, 4, 4), LinearPlan(64, 256 // width, stretches, 4, 5)]
        return list(dict.fromkeys(plans))
    if width == 1:
        tiles = [(2, 1024, 2, 1), (1, 4096, 2, 1), (2, 2048, 2, 1), (1, 2048, 1, 1), (2, 4096, 4, 1), (4, 2048, 4, 2)]
    else:
        tiles = [(8, 512, 4, 3), (8, 1024, 8, 2), (1, 2048, 2, 1), (2, 1024, 2, 1), (4, 1024, 4, 1), (1, 1024, 1, 1)]
    return [LinearPlan(o, i, 1, w, s) for o, i, w, s in tiles if num_in % i == 0]


def linear_launches(
    rows: int, num_out: int, num_in: int, kind: str, plan: LinearPlan | None, early: bool
) -> list[Launch]:
    dtype = torch.bfloat16 if kind == "bf16" else torch.float8_e4m3fn
    workspace = linear_workspace(num_out, 64, "cuda")
    found: list[Launch] = []
    for _ in range(min(40, int(3 * L2_BYTES / (num_out * num_in * dtype.itemsize)) + 1)):
        x, weight = (torch.randn((n, num_in), device="cuda").to(dtype) for n in (rows, num_out))
        out = torch.empty((rows, num_out), device="cuda", dtype=torch.bfloat16)
        if plan is None:
            found.append(functools.partial(torch.mm, x, weight.t(), out=out))
            continue
        scales = {}
        if kind == "fp8":
            scales = {
                name: torch.rand(n, device="cuda") for name, n in (("x_scales", rows), ("weight_scales", num_out))
            }
        found.append(functools.partial(small_linear, out, x, weight, workspace, early=early, plan=plan, **scales))
    found[-1]()
    if plan is not None:
        expected = x.float() @ weight.float().t()
        if scales:
            expected *= scales["x_scales"][:, None] * scales["weight_scales"]
        assert_near(f"linear {kind} {plan}", out, expected, 1e-2)
    return found


FIXED_TILES = {
    16: [(16, 64, 4, 4), (16, 64, 4, 8), (16, 128, 8, 4), (16, 128, 4, 5)],
    64: [(64, 64, 4, 3), (64, 64, 4, 6), (64, 128, 8, 4), (32, 64, 4, 5)],
    128: [(128, 64, 4, 3), (128, 128, 8, 3), (128, 128, 8, 4), (64, 128, 8, 4)],
    8192: [(128, 128, 8, 3), (128, 128, 8, 4), (256, 64, 4, 3), (256, 128, 8, 3), (256, 128, 8, 4), (128, 256, 8, 3)],
}


def fixed_linear_cases(wanted: Wanted) -> Iterator[Case]:
    """Products of the deterministic mode, each beside torch's."""
    for matrix, (num_out, num_in) in MATRICES["8B"].items():
        for kind, rows in itertools.product(("bf16", "fp8"), (1, 16, 64, 128, 256, 512, 1024, 8192)):
            if matrix == "head" and (kind == "fp8" or rows > 512):
                continue
            width = 2 if kind == "bf16" else 1
            flops = 2 * rows * num_out * num_in * (1 if kind == "bf16" else 719 / 1184)
            tiles: list[FixedTile | None] = [None]
            if wanted.variants:
                tiles += [FixedTile(*tile) for tile in next(few for most, few in FIXED_TILES.items() if rows <= most)]
            name = f"8B {matrix} {kind}, {rows} rows"
            make = functools.partial(fixed_linear_launches, rows, num_out, num_in, kind)
            yield Case("fixed", f"{name}, torch", functools.partial(make, True, None), num_out * num_in * width, flops)
            for tile in tiles:
                label = f"{name}, {tile or 'as chosen'}"
                yield Case("fixed", label, functools.partial(make, False, tile), num_out * num_in * width, flops)


def fixed_linear_launches(
    rows: int, num_out: int, num_in: int, kind: str, by_torch: bool, tile: FixedTile | None
) -> list[Launch]:
    dtype = torch.bfloat16 if kind == "bf16" else torch.float8_e4m3fn
    found: list[Launch] = []
    for _ in range(min(40, int(3 * L2_BYTES / (num_out * num_in * dtype.itemsize)) + 1)):
        x, weight = (torch.randn((n, num_in), device="cuda").to(dtype) for n in (rows, num_out))
        out = torch.empty((rows, num_out), device="cuda", dtype=torch.bfloat16)
        x_scales, scales = (torch.rand(n, device="cuda") for n in (rows, num_out))
        if not by_torch:
            both = (x_scales, scales) if kind == "fp8" else ()
            found.append(
                functools.partial(fixed_linear, out, x, weight, fixed_workspace([weight], "cuda"), *both, tile=tile)
            )
        elif kind == "bf16":
            found.append(functools.partial(torch.mm, x, weight.t(), out=out))
        else:
            by_row = {
                "scale_a": x_scales.view(-1, 1),
                "scale_b": scales.view(1, -1),
                "out_dtype": out.dtype,
                "out": out,
            }
            found.append(functools.partial(torch._scaled_mm, x, weight.t(), use_fast_accum=True, **by_row))
    found[-1]()
    expected = x[:64].float() @ weight.float().t()
    if kind == "fp8":
        expected *= x_scales[:64, None] * scales
    assert_near(f"fixed {kind} {tile}", out[:64], expected, 1e-2)
    return found


def fixed_attention_cases(wanted: Wanted) -> Iterator[Case]:
    for rows, new, cached in ((256, 1, 450), (512, 1, 600), (64, 1, 1023), (8, 1, 8191), (1, 1, 383)):
        make = functools.partial(fixed_attention_launches, rows, new, cached)
        yield Case("fixed", f"attention of {rows} x {new} after {cached}", make, rows * (new + cached) * 8 * 512)
    for rows, new, cached in ((1, 8192, 0), (1, 1024, 0), (16, 512, 0), (4, 512, 4096)):
        flops = 4 * rows * (new * new / 2 + new * cached) * 128 * 32
        make = functools.partial(fixed_attention_launches, rows, new, cached)
        yield Case("fixed", f"attention of {rows} x {new} after {cached}", make, rows * (new + cached) * 8 * 512, flops)


def fixed_attention_launches(rows: int, new: int, cached: int) -> list[Launch]:
    starts = torch.arange(rows + 1, device="cuda", dtype=torch.int32) * new
    lens = torch.full((rows,), new + cached, device="cuda", dtype=torch.int32)
    programs = 1056 // (rows * 8) if new == 1 else 0
    workspace = split_workspace(rows, 32, 8, 128, new + cached, "cuda") if programs > 1 else None
    found: list[Launch] = []
    for _ in range(num_sets(rows * (new + cached) * 8 * 512)):
        q, out = (torch.randn((rows * new, 32, 128), device="cuda", dtype=torch.bfloat16) for _ in range(2))
        keys, values, table = paged(rows, new + cached, 8, 128)
        arguments = (out, q, keys, values, table, starts, lens, SCALE, 0, workspace, max(1, programs))
        found.append(functools.partial(fixed_attention, *arguments))
    found[-1]()
    count = min(new, 512)
    flat_keys, flat_values = (x[table[-1]].flatten(0, 1)[: new + cached] for x in (keys, values))
    assert_near("fixed attention", out[-count:], mixed_by_torch(q[-count:], flat_keys, flat_values, SCALE), 1e-2)
    return found


def fixed_cases(wanted: Wanted) -> Iterator[Case]:
    yield from fixed_linear_cases(wanted)
    yield from fixed_attention_cases(wanted)


def sampling_cases(wanted: Wanted) -> Iterator[Case]:
    for rows, vocab in ((256, 128256), (1, 128256), (1, 151936)):
        for dtype in (torch.bfloat16, torch.float32):
            for temperature in (None, 0.0, 1.0):
                make = functools.partial(sampling_launches, rows, vocab, dtype, temperature)
                name = f"{rows} x {vocab} {dtype}, {'greedy' if temperature is None else temperature}"
                yield Case("sampling", name, make, rows * vocab * dtype.itemsize)


def sampling_launches(rows: int, vocab: int, dtype: torch.dtype, temperature: float | None) -> list[Launch]:
    workspace = sampling_workspace(rows, vocab, "cuda")
    tokens, broken = (torch.empty(rows, device="cuda", dtype=torch.int32) for _ in range(2))
    draws = None
    if temperature is not None:
        zeros = torch.zeros(rows, device="cuda", dtype=torch.int32)
        draws = DrawTensors(zeros + temperature, torch.arange(rows, device="cuda"), zeros, zeros)
    found: list[Launch] = []
    for _ in range(num_sets(rows * vocab * dtype.itemsize)):
        logits = torch.randn((rows, vocab), device="cuda").to(dtype)
        found.append(functools.partial(sample_tokens, tokens, broken, logits, workspace, draws))
    found[-1]()
    if not temperature:
        best = logits.float()
        assert (best.gather(1, tokens.long()[:, None])[:, 0] == best.amax(1)).all()
    return found


def border_cases(wanted: Wanted) -> Iterator[Case]:
    for rows in (256, 1):
        for top_k, top_p in ((50, 1.0), (0, 0.95), (50, 0.95)):
            make = functools.partial(border_launches, rows, 128256, top_k, top_p)
            yield Case("borders", f"{rows} x 128256, top_k {top_k}, top_p {top_p}", make, rows * 128256 * 4)


def border_launches(rows: int, vocab: int, top_k: int, top_p: float) -> list[Launch]:
    logits = 3 * torch.randn((rows, vocab), device="cuda")
    zeros = torch.zeros(rows, device="cuda", dtype=torch.int32)
    draws = DrawTensors(zeros + 1.0, torch.arange(rows, device="cuda"), zeros, zeros)
    borders = Borders(zeros + 0.0, zeros.clone())
    filters = {"top_k": zeros + top_k, "top_p": zeros + top_p, "lists": candidate_lists(rows, vocab, "cuda")}
    launch = functools.partial(find_borders, borders, logits, draws, **filters)
    launch()
    if top_p == 1.0:
        assert (borders.logits == logits.topk(top_k).values[:, -1]).all()
    return [launch]


def rule_cases(wanted: Wanted) -> Iterator[Case]:
    for rows, length in ((64, 640), (64, 4096), (64, 100_000), (1, 640)):
        make = functools.partial(rule_launches, rows, 128256, length)
        yield Case("rules", f"{rows} x 128256, {length} tokens seen", make, rows * 128256 * 6)


def rule_launches(rows: int, vocab: int, length: int) -> list[Launch]:
    """Penalties for all that was seen, a mask and a thousand biases."""
    records = torch.zeros((rows, record_width(vocab)), device="cuda", dtype=torch.int32)
    head = [1, length // 2, *torch.tensor([1.3, 0.5, 0.2]).view(torch.int32).tolist(), 1, 1000]
    records[:, : len(head)] = torch.tensor(head, device="cuda", dtype=torch.int32)
    records[:, MASKS.value :] = -1
    tokens = torch.randint(vocab, (rows, length), device="cuda", dtype=torch.int32)
    lengths = torch.full((rows,), length, device="cuda", dtype=torch.int32)
    drawing = DrawingRows(torch.arange(rows, device="cuda", dtype=torch.int32), lengths)
    out, counts = (torch.zeros((rows, vocab), device="cuda", dtype=kind) for kind in (torch.float32, torch.int32))
    found: list[Launch] = []
    for _ in range(num_sets(rows * vocab * 6)):
        logits = torch.randn((rows, vocab), device="cuda").to(torch.bfloat16)
        found.append(functools.partial(shape_logits, out, logits, drawing, records, tokens, counts))
    found[-1]()
    assert not counts.any()
    unseen = torch.ones((rows, vocab), device="cuda", dtype=torch.bool).scatter_(1, tokens.long(), False)
    assert (out == logits.float())[unseen].all() and (out < logits.float())[~unseen].all()
    return found


def score_cases(wanted: Wanted) -> Iterator[Case]:
    for rows, num_best in ((256, 0), (256, 5), (256, 20), (1, 5)):
        make = functools.partial(score_launches, rows, 128256, num_best)
        yield Case("scores", f"{rows} x 128256, the {num_best} best", make, rows * 128256 * 2)


def score_launches(rows: int, vocab: int, num_best: int) -> list[Launch]:
    records = torch.zeros((rows, record_width(vocab)), device="cuda", dtype=torch.int32)
    records[:, NUM_SCORES.value] = 1 + num_best
    own, drawn = (torch.arange(rows, device="cuda", dtype=torch.int32) for _ in range(2))
    scores = torch.zeros((rows, SCORES_WIDTH), device="cuda", dtype=torch.int32)
    scratch = score_scratch(rows, vocab, "cuda")
    found: list[Launch] = []
    for _ in range(num_sets(rows * vocab * 2)):
        logits = torch.randn((rows, vocab), device="cuda").to(torch.bfloat16)
        found.append(functools.partial(score_tokens, scores, logits, drawn, own, records[:, NUM_SCORES.value], scratch))
    found[-1]()
    expected = logits.float().log_softmax(1)
    torch.testing.assert_close(
        scores[:, 0].view(torch.float32), expected.gather(1, drawn.long()[:, None])[:, 0], rtol=0, atol=1e-5
    )
    best = scores[:, BEST_SCORES.value :][:, :num_best].contiguous().view(torch.float32)
    torch.testing.assert_close(best, expected.topk(num_best, 1).values, rtol=0, atol=1e-5)
    return found


SECTIONS = {
    "decode": decode_cases,
    "shared": shared_cases,
    "prefill": prefill_cases,
    "linear": linear_cases,
    "fixed": fixed_cases,
    "sampling": sampling_cases,
    "borders": border_cases,
    "rules": rule_cases,
    "scores": score_cases,
}


def report(case: Case) -> str:
    try:
        seconds = time_launches(case.launches())
    except Exception as error:
        return f"{case.section:9} {case.name}: {str(error)[-150:]}"
    share = max(case.num_bytes / READ_BYTES_PER_SECOND, case.num_flops / BF16_FLOPS_PER_SECOND) / seconds
    rates = f"{case.num_bytes / seconds / 1e12:6.2f} TB/s {case.num_flops / seconds / 1e12:6.0f} TFLOP/s"
    return f"{case.section:9} {seconds * 1e6:9.2f} us {rates} {share:6.1%}  {case.name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), metavar="section")
    parser.add_argument("--once", action="store_true", help="compile and check only")
    parser.add_argument("--variants", action="store_true", help="other tiles and plans beside the chosen ones")
    parser.add_argument("--pages", choices=PAGE_TYPES, default="bf16", help="what decode, shared and prefill read")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th case, from the I-th on")
    arguments = parser.parse_args()
    index, count = map(int, arguments.shard.split("/"))
    wanted = Wanted(arguments.variants, PAGE_TYPES[arguments.pages])
    cases = [case for section in arguments.sections for case in SECTIONS[section](wanted)]
    torch.manual_seed(7)
    for case in cases[index::count]:
        if not arguments.once:
            print(report(case), flush=True)
            continue
        try:
            case.launches()
        except Exception as error:
            print(f"{case.section} {case.name}: {str(error)[-200:]}", flush=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
