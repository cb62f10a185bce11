"""Attention of a step: rows of one token and rows of many go to the kernels made for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.decode_attention import (
    DecodeCut,
    DecodeWorkspace,
    decode_attention,
    decode_cuts,
    decode_workspace,
)
from pagoda.kernels.cuda.prefill_attention import prefill_attention
from pagoda.kernels.cuda.quick_launch import Launch
from pagoda.kernels.cuda.rope_write import FreshHeads
from pagoda.kernels.cuda.shared_attention import shared_attention
from pagoda.kernels.cuda.tiles import PageTiles

# Programs that fill the device twice over.
PROGRAMS_IN_ALL = 1056


class HeadShape(NamedTuple):
    """Of a layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


class Attention:
    """Holds the workspaces that all layers of a shape share; one step at a time may use them.

    Layers of a step differ in their pages alone: what one has launched, the next launches again.
    """

    _decode_cuts = staticmethod(decode_cuts)

    def __init__(self, device: torch.device, max_rows: int, max_context: int, shapes: Iterable[HeadShape] = ()) -> None:
        self._device = device
        self._max_context = max_context
        self._cuts = self._decode_cuts(max_rows, max_context)
        self._tiles: dict[int, PageTiles] = {}  # by where the keys lie
        self._workspaces: dict[tuple[DecodeCut, HeadShape], DecodeWorkspace] = {}
        for shape in sorted(set(shapes)):  # all that a step may need is made before the first
            for cut in self._cuts:
                self._workspace(cut, shape)

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
        """`fresh` heads take the place of the queries, in a batch that only decodes."""
        layer = (group, scale, window, out.data_ptr(), queries.data_ptr(), out.shape[1])
        made = batch.launches.get(layer)
        if made is None or fresh is not None:
            launches = self._launch(out, queries, pages, batch, group, scale, window, fresh)
            if all(launches):
                batch.launches[layer] = pages, [launch for launch in launches if launch is not None]
            return
        others = self._others(made[0], pages)
        for launch in made[1]:
            launch.again(others)

    def _launch(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        pages: KVPages,
        batch: DeviceBatch,
        group: int,
        scale: float,
        window: int,
        fresh: FreshHeads | None,
    ) -> list[Launch | None]:
        """None among them: the next layer has to launch anew."""
        launches: list[Launch | None] = []
        count = batch.num_decoding
        if count:
            launches += self._decode(out[:count], queries[:count], pages, batch, group, scale, window, fresh)
        if count < batch.num_entries:
            launch = prefill_attention(
                out[count:],
                queries[count:],
                pages.keys,
                pages.values,
                batch.prompts.page_tables[group],
                batch.prompt_starts,
                batch.prompts.lens,
                batch.max_new,
                scale,
                window,
                page_tiles=self._tiles_of(pages),
            )
            launches.append(launch)
        return launches

    def _decode(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        pages: KVPages,
        batch: DeviceBatch,
        group: int,
        scale: float,
        window: int,
        fresh: FreshHeads | None,
    ) -> list[Launch | None]:
        num_rows, num_heads = queries.shape[:2]
        num_kv_heads, head_dim = pages.keys.shape[2:]
        cut = self._cut(num_rows)
        workspace = self._workspace(cut, HeadShape(num_heads, num_kv_heads, head_dim))
        programs_per_row = max(cut.fewest_programs, PROGRAMS_IN_ALL // (num_rows * num_kv_heads))
        table, context_lens = batch.decoding.page_tables[group], batch.decoding.lens
        where = (out, queries, pages.keys, pages.values, table, context_lens)
        if batch.shared is not None and not window:
            return shared_attention(
                *where, batch.shared, scale, workspace, programs_per_row, page_tiles=self._tiles_of(pages)
            )
        how = (scale, window, workspace, programs_per_row)
        return [decode_attention(*where, *how, fresh=fresh, page_tiles=self._tiles_of(pages))]

    def _others(self, old: KVPages, new: KVPages) -> dict[int, Any]:
        """What stands in a launch for pages, and what would stand there for others."""
        others: dict[int, Any] = {id(old.keys): new.keys, id(old.values): new.values}
        return others | self._tiles_of(new).in_place_of(self._tiles_of(old))

    def _tiles_of(self, pages: KVPages) -> PageTiles:
        place = pages.keys.data_ptr()
        if place not in self._tiles:
            self._tiles[place] = PageTiles(pages.keys, pages.values)
        return self._tiles[place]

    def num_bytes(self) -> int:
        return bytes_of(*self._workspaces.values())

    def _cut(self, num_rows: int) -> DecodeCut:
        return next(cut for cut in self._cuts if num_rows <= cut.most_rows)

    def _workspace(self, cut: DecodeCut, shape: HeadShape) -> DecodeWorkspace:
        if (cut, shape) not in self._workspaces:
            made = decode_workspace(cut.most_rows, *shape, self._max_context, self._device, cut.split_len)
            self._workspaces[cut, shape] = made
        return self._workspaces[cut, shape]
