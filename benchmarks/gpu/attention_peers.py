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
    DECODE_LENS,
    READ_BYTES_PER_SECOND,
    SCALE,
    Launch,
    assert_near,
    mixed_by_torch,
    name_of,
    num_sets,
    paged_rows,
    time_launches,
)
from benchmarks.report import print_table
from pagoda.kernels.cuda.decode_attention import decode_attention, decode_workspace
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from pagoda.kernels.cuda.prefill_attention import prefill_attention
from pagoda.kernels.cuda.shared_attention import SharedRows, num_shared_slots, shared_attention
from pagoda.kernels.cuda.tiles import PageTiles

KV_HEADS, HEAD_DIM = 8, 128
TOKEN_BYTES = 2 * 2 * KV_HEADS * HEAD_DIM
ABSENT = "-"


@dataclass(frozen=True)
class Shape:
    """Rows of these contexts, whose last `new` tokens attend."""

    section: str
    lens: tuple[int, ...]
    new: int = 1
    heads: int = 32
    shared: int = 0

    @property
    def rows(self) -> int:
        return len(self.lens)

    @property
    def longest(self) -> int:
        return max(self.lens)

    @property
    def name(self) -> str:
        new = f"{self.new:,} of " if self.new > 1 else ""
        of_all = f", {self.shared:,} of them shared" if self.shared else ""
        return f"{new}{name_of(list(self.lens))}{of_all}, {self.heads} heads"

    @property
    def num_read(self) -> int:
        """Tokens; what is shared, once."""
        return sum(self.lens) - self.shared * (self.rows - 1)

    @property
    def floor_seconds(self) -> float:
        num_pairs = self.new * (sum(self.lens) - self.rows * self.new / 2)
        flops = 4 * num_pairs * self.heads * HEAD_DIM
        return max(self.num_read * TOKEN_BYTES / READ_BYTES_PER_SECOND, flops / BF16_FLOPS_PER_SECOND)


SHAPES = [
    *(Shape("decode", tuple(lens), heads=heads) for lens, heads in DECODE_LENS),
    Shape("shared", (2240,) * 256, shared=2048),
    Shape("prompts", (8192,), new=8192),
    Shape("prompts", (1024,), new=1024),
    Shape("prompts", (512,) * 16, new=512),
    Shape("prompts", (4608,) * 4, new=512),
    Shape("prompts", (2176,) * 64, new=128),
    Shape("prompts", (65_536,), new=8192),
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
        keys, values, table = paged_rows(list(shape.lens), KV_HEADS, HEAD_DIM)
        if shape.shared:
            num_pages = shape.shared // keys.shape[1]
            table[:, :num_pages] = table[0, :num_pages].clone()
        starts = torch.arange(shape.rows + 1, device="cuda", dtype=torch.int32) * shape.new
        return cls(out, q, keys, values, table, starts, torch.tensor(shape.lens, device="cuda", dtype=torch.int32))

    def check(self, name: str, out: torch.Tensor) -> None:
        """The last tokens of the first and of the last row."""
        for row in (0, len(self.lens) - 1):
            first, last, length = int(self.starts[row]), int(self.starts[row + 1]), int(self.lens[row])
            count = min(last - first, 64)
            keys, values = (x[self.table[row].long()].flatten(0, 1)[:length] for x in (self.keys, self.values))
            expected = mixed_by_torch(self.q[last - count : last], keys, values, SCALE)
            assert_near(name, out[last - count : last], expected, 1e-2)


def ours(shape: Shape, inputs: Inputs) -> Launch:
    where = (inputs.out, inputs.q, inputs.keys, inputs.values, inputs.table)
    tiles = PageTiles(inputs.keys, inputs.values)
    if shape.new > 1:
        lengths = (inputs.starts, inputs.lens, shape.new)
        return functools.partial(prefill_attention, *where, *lengths, SCALE, 0, page_tiles=tiles)
    room = num_shared_slots(shape.rows, shape.heads, KV_HEADS)
    workspace = decode_workspace(shape.rows, shape.heads, KV_HEADS, HEAD_DIM, "cuda", room)
    plan = DecodePlan.of(PlanKind(KV_HEADS), shape.rows, "cuda")
    if not shape.shared:
        plan.make(inputs.lens)
        return functools.partial(decode_attention, *where, plan, SCALE, workspace, page_tiles=tiles)
    members = torch.arange(shape.rows, device="cuda", dtype=torch.int32)
    ends = torch.tensor([0, shape.rows], device="cuda", dtype=torch.int32)
    group = SharedRows(torch.full_like(members, shape.shared), members, ends)
    plan.make(inputs.lens, group.shared_lens)
    return functools.partial(shared_attention, *where, plan, group, SCALE, workspace, page_tiles=tiles)


def flash_attention_3(shape: Shape, inputs: Inputs) -> Launch | None:
    """Paged, with its plan of the work made beforehand, as vLLM does once a step."""
    if not load_flash_attention_3():
        return None
    library = torch.ops._vllm_fa3_C
    sizes = (shape.rows, shape.new, shape.longest, shape.heads, KV_HEADS, HEAD_DIM, HEAD_DIM)
    page_size = inputs.keys.shape[1]
    plan = library.get_scheduler_metadata(
        *sizes, torch.bfloat16, inputs.lens, inputs.starts, None, None, None, None, page_size, 0, True, -1, -1, False,
        0, None, 0,
    )  # fmt: skip

    def launch() -> None:
        library.fwd(
            inputs.q, inputs.keys, inputs.values, None, None, None, inputs.out, inputs.starts, None, None, None,
            inputs.lens, shape.new, shape.longest, inputs.table, None, None, None, None, None, None, None, None, SCALE,
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
    if {shape.new} != set(shape.lens):
        return None
    q = inputs.q.view(shape.rows, shape.new, shape.heads, HEAD_DIM).transpose(1, 2)
    keys, values = (x[inputs.table.long()].flatten(1, 2)[:, : shape.new] for x in (inputs.keys, inputs.values))
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
    sets = [Inputs.of(shape) for _ in range(num_sets(sum(shape.lens) * TOKEN_BYTES))]
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
