"""What the deterministic mode puts in the place of products and attention: a row has the same bits in any step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.attention import Attention, HeadShape
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.decode_plan import PROGRAMS_IN_ALL
from pagoda.kernels.cuda.fixed_attention import SPLIT_LEN, SplitWorkspace, fixed_attention, split_workspace
from pagoda.kernels.cuda.fixed_linear import fixed_linear, fixed_workspace
from pagoda.kernels.cuda.linear import Matrix
from pagoda.kernels.cuda.rope_write import FreshHeads
from pagoda.kernels.cuda.small_linear import LinearWorkspace


@dataclass(frozen=True, eq=False)
class FixedMatrix(Matrix):
    """Multiplies any number of rows by one kernel."""

    def multiply(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        workspace: LinearWorkspace,
        x_scales: torch.Tensor | None = None,
    ) -> None:
        scales = None if self.scales is None else self.scales.view(-1)
        fixed_linear(out, x, self.numbers, workspace, x_scales, scales, self.bias)


def workspace_for(matrices: Iterable[Matrix], device: torch.device, _dtype: torch.dtype) -> LinearWorkspace:
    return fixed_workspace((matrix.numbers for matrix in matrices), device)


class FixedAttention(Attention):
    """Attention of a step by one kernel. Decoding rows that are too few for the device share out their splits."""

    def __init__(self, device: torch.device, max_rows: int, max_context: int, shapes: Iterable[HeadShape]) -> None:
        super().__init__(device, max_rows, ())
        self._max_context = max_context
        self._of_splits: dict[HeadShape, SplitWorkspace] = {}
        for shape in sorted({shape._replace(window=0) for shape in shapes}):
            # For the most rows that still share out their splits.
            most = min(max_rows, max(1, PROGRAMS_IN_ALL // (2 * shape.num_kv_heads)))
            self._of_splits[shape] = split_workspace(most, *shape[:3], max_context, device)

    def __call__(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        pages: KVPages,
        batch: DeviceBatch,
        group: int,
        scale: float,
        window: int,
        fresh: FreshHeads | None = None,
    ) -> None:
        assert fresh is None, "queries are turned and keys written by the kernel that does so in prompts"
        table, context_lens = batch.page_tables[group], batch.context_lens
        num_kv_heads, head_dim = pages.keys.shape[2:]
        count = batch.num_decoding
        most_splits = -(-self._max_context // SPLIT_LEN)
        programs_per_row = min(most_splits, PROGRAMS_IN_ALL // max(1, count * num_kv_heads))
        if count == 0 or programs_per_row < 2:
            where = (out, queries, pages.keys, pages.values, table)
            fixed_attention(*where, batch.row_starts, context_lens, scale, window)
            return
        workspace = self._of_splits[HeadShape(queries.shape[1], num_kv_heads, head_dim)]
        where = (out[:count], queries[:count], pages.keys, pages.values, table[:count])
        starts = batch.row_starts[: count + 1]
        fixed_attention(*where, starts, context_lens[:count], scale, window, workspace, programs_per_row)
        if count < batch.num_entries:
            where = (out[count:], queries[count:], pages.keys, pages.values, table[count:])
            fixed_attention(*where, batch.prompt_starts, context_lens[count:], scale, window)

    def num_bytes(self) -> int:
        return bytes_of(*self._of_splits.values())
