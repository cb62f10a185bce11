"""Attention beside the libraries of the field, on the same inputs and the same card, in turns.

python -m benchmarks.gpu.attention_peers [--sections decode shared prompts] [--turns 3]

FlashAttention 3 is the one that vLLM ships, and is there where vLLM is installed (its library alone will do); torch
brings FlashAttention 2 and, where it was built with it, cuDNN. torch's take whole prompts of equal length alone, and
keys and values that lie one behind the other: no pages. Every result is held against float32 before it is timed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.kernels import (
    BF16_FLOPS_PER_SECOND,
    READ_BYTES_PER_SECOND,
    SCALE,
    Launch,
    assert_near,
    mixed_by_torch,
    num_sets,
    paged,
    time_launches,
)
from benchmarks.report import print_table
from pagoda.kernels.cuda.decode_attention import FEWEST_PROGRAMS, decode_attention, decode_cuts, decode_workspace
from pagoda.kernels.cuda.prefill_attention import prefill_attention
from pagoda.kernels.cuda.shared_attention import SharedRows, shared_attention
from pagoda.kernels.cuda.tiles import PageTiles

KV_HEADS, HEAD_DIM = 8, 128
TOKEN_BYTES = 2 * 2 * KV_HEADS * HEAD_DIM
ABSENT = "-"


@dataclass(frozen=True)
class Shape:
    """`rows` with `new` tokens each behind others, so that contexts are from `low` to `high`."""

    section: str
    rows: int
    new: int
    low: int
    high: int
    heads: int = 32
    shared: int = 0

    @property
    def name(self) -> str:
        lengths = f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"
        of_all = f", {self.shared:,} of them shared" if self.shared else ""
        return f"{self.rows} x {self.new:,} of {lengths}{of_all}, {self.heads} heads"

    @property
    def floor_seconds(self) -> float:
        """What must be read, shared pages once, or what must be multiplied."""
        contexts = self.rows * ((self.low + self.high) / 2 - self.shared) + self.shared
        num_pairs = self.rows * self.new * ((self.low + self.high) / 2 - self.new / 2)
        flops = 4 * num_pairs * self.heads * HEAD_DIM
        return max(contexts * TOKEN_BYTES / READ_BYTES_PER_SECOND, flops / BF16_FLOPS_PER_SECOND)


SHAPES = [
    Shape("decode", 256, 1, 300, 600),
    Shape("decode", 256, 1, 100, 2000, heads=16),
    Shape("decode", 64, 1, 1024, 1024),
    Shape("decode", 8, 1, 8192, 8192),
    Shape("decode", 8, 1, 384, 384),
    Shape("decode", 1, 1, 384, 384),
    Shape("shared", 256, 1, 2240, 2240, shared=2048),
    Shape("prompts", 1, 8192, 8192, 8192),
    Shape("prompts", 1, 1024, 1024, 1024),
    Shape("prompts", 16, 512, 512, 512),
    Shape("prompts", 4, 512, 4608, 4608),
    Shape("prompts", 64, 128, 2176, 2176),
]


@dataclass(frozen=True, eq=False)
class Inputs:
    out: torch.Tensor
    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    table: torch.Tensor
    starts: torch.Tensor
    lens: torch.Tensor

    @classmethod
    def of(cls, shape: Shape) -> Inputs:
        q, out = (
            torch.randn((shape.rows * shape.new, shape.heads, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
            for _ in range(2)
        )
        keys, values, table = paged(shape.rows, shape.high, KV_HEADS, HEAD_DIM)
        if shape.shared:
            num_pages = shape.shared // keys.shape[1]
            table[:, :num_pages] = table[0, :num_pages].clone()
        starts = torch.arange(shape.rows + 1, device="cuda", dtype=torch.int32) * shape.new
        lens = torch.linspace(shape.low, shape.high, shape.rows, device="cuda").int()
        return cls(out, q, keys, values, table, starts, lens)

    def check(self, name: str, out: torch.Tensor) -> None:
        """The last tokens of the first and of the last row."""
        for row in (0, len(self.lens) - 1):
            first, last, length = int(self.starts[row]), int(self.starts[row + 1]), int(self.lens[row])
            count = min(last - first, 256)
            keys, values = (x[self.table[row]].flatten(0, 1)[:length] for x in (self.keys, self.values))
            expected = mixed_by_torch(self.q[last - count : last], keys, values, SCALE)
            assert_near(name, out[last - count : last], expected, 1e-2)


def ours(shape: Shape, inputs: Inputs) -> Launch:
    arguments = (inputs.out, inputs.q, inputs.keys, inputs.values, inputs.table)
    tiles = PageTiles(inputs.keys, inputs.values)
    if shape.new > 1:
        lengths = (inputs.starts, inputs.lens, shape.new)
        return functools.partial(prefill_attention, *arguments, *lengths, SCALE, 0, page_tiles=tiles)
    split_len = decode_cuts(shape.rows, shape.high)[-1].split_len
    if not shape.shared:
        workspace = decode_workspace(shape.rows, shape.heads, KV_HEADS, HEAD_DIM, shape.high, "cuda", split_len)
        return functools.partial(decode_attention, *arguments, inputs.lens, SCALE, 0, workspace, page_tiles=tiles)
    workspace = decode_workspace(shape.rows, shape.heads, KV_HEADS, HEAD_DIM, shape.high, "cuda")
    members = torch.arange(shape.rows, device="cuda", dtype=torch.int32)
    ends = torch.tensor([0, shape.rows], device="cuda", dtype=torch.int32)
    group = SharedRows(torch.full_like(members, shape.shared), members, ends)
    how = {"programs_per_row": FEWEST_PROGRAMS, "page_tiles": tiles}
    return functools.partial(shared_attention, *arguments, inputs.lens, group, SCALE, workspace, **how)


def flash_attention_3(shape: Shape, inputs: Inputs) -> Launch | None:
    """Paged, with its plan of the work made beforehand, as vLLM does once a step."""
    if not load_flash_attention_3():
        return None
    library = torch.ops._vllm_fa3_C
    sizes = (shape.rows, shape.new, shape.high, shape.heads, KV_HEADS, HEAD_DIM, HEAD_DIM)
    page_size = inputs.keys.shape[1]
    plan = library.get_scheduler_metadata(
        *sizes, torch.bfloat16, inputs.lens, inputs.starts, None, None, None, None, page_size, 0, True, -1, -1, False,
        0, None, 0,
    )  # fmt: skip

    def launch() -> None:
        library.fwd(
            inputs.q, inputs.keys, inputs.values, None, None, None, inputs.out, inputs.starts, None, None, None,
            inputs.lens, shape.new, shape.high, inputs.table, None, None, None, None, None, None, None, None, SCALE,
            True, -1, -1, 0.0, True, plan, 0, None, 0, None, 1, 0, None,
        )  # fmt: skip

    return launch


@functools.cache
def load_flash_attention_3() -> bool:
    spec = importlib.util.find_spec("vllm")
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        for path in Path(folder, "vllm_flash_attn").glob("_vllm_fa3_C*.so"):
            torch.ops.load_library(path)
            return True
    return False


def of_torch(backend: SDPBackend, shape: Shape, inputs: Inputs) -> Launch | None:
    """Whole prompts of one length, keys and values one behind the other."""
    if shape.new != shape.high or shape.low != shape.high:
        return None
    q = inputs.q.view(shape.rows, shape.new, shape.heads, HEAD_DIM).transpose(1, 2)
    keys, values = (x[inputs.table].flatten(1, 2)[:, : shape.new] for x in (inputs.keys, inputs.values))
    keys, values = (x.contiguous().transpose(1, 2) for x in (keys, values))

    def launch() -> torch.Tensor:
        with sdpa_kernel([backend]):
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(q, keys, values, is_causal=True, scale=SCALE, enable_gqa=True)

    inputs.out.view(shape.rows, shape.new, shape.heads, HEAD_DIM).copy_(launch().transpose(1, 2))
    return lambda: [launch(), None][1]


LIBRARIES: dict[str, Callable[[Shape, Inputs], Launch | None]] = {
    "ours": ours,
    "FlashAttention 3": flash_attention_3,
    "cuDNN": functools.partial(of_torch, SDPBackend.CUDNN_ATTENTION),
    "FlashAttention 2": functools.partial(of_torch, SDPBackend.FLASH_ATTENTION),
}


def launches_of(library: str, shape: Shape, sets: list[Inputs]) -> list[Launch]:
    """Checked; none where the library does not do this."""
    found = []
    for inputs in sets:
        inputs.out.fill_(float("nan"))
        launch = LIBRARIES[library](shape, inputs)
        if launch is None:
            return []
        launch()
        inputs.check(library, inputs.out)
        found.append(launch)
    return found


def measure(shape: Shape, turns: int) -> dict[str, float | str]:
    """Seconds by library, or what it said."""
    sets = [Inputs.of(shape) for _ in range(num_sets(shape.rows * shape.high * TOKEN_BYTES))]
    found: dict[str, float | str] = {}
    launches: dict[str, list[Launch]] = {}
    for library in LIBRARIES:
        try:
            launches[library] = launches_of(library, shape, sets)
        except (RuntimeError, AssertionError) as error:
            found[library] = str(error).splitlines()[0][:40]
    times: dict[str, list[float]] = {}
    for _ in range(turns):
        for library, own in launches.items():
            if own:
                times.setdefault(library, []).append(time_launches(own))
    return found | {library: statistics.median(seconds) for library, seconds in times.items()}


def table_line(shape: Shape, found: dict[str, float | str]) -> list[str]:
    seconds = {library: value for library, value in found.items() if isinstance(value, float)}
    peers = [value for library, value in seconds.items() if library != "ours"]
    cells = []
    for library in LIBRARIES:
        value = found.get(library, ABSENT)
        cells.append(f"{1e6 * value:.1f}" if isinstance(value, float) else value)
    ratio = f"{min(peers) / seconds['ours']:.2f}x" if peers and "ours" in seconds else ABSENT
    return [shape.name, *cells, f"{1e6 * shape.floor_seconds:.1f}", ratio]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = sorted({shape.section for shape in SHAPES})
    parser.add_argument("--sections", nargs="+", choices=sections, default=sections)
    parser.add_argument("--turns", type=int, default=3, help="times that each is timed; the median is shown")
    args = parser.parse_args()
    torch.manual_seed(7)
    lines = []
    for shape in SHAPES:
        if shape.section in args.sections:
            lines.append(table_line(shape, measure(shape, args.turns)))
            print("  ".join(lines[-1]), flush=True)
            torch.cuda.empty_cache()
    print_table("Attention, microseconds a layer, bf16", ["", *LIBRARIES, "limit", "best of the others"], lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
