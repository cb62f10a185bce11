"""Attention of a step: rows of one token and rows of many go to the kernels made for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.decode_attention import DecodeWorkspace, decode_attention, decode_workspace
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from pagoda.kernels.cuda.prefill_attention import prefill_attention
from pagoda.kernels.cuda.quick_launch import Launch
from pagoda.kernels.cuda.rope_write import FreshHeads
from pagoda.kernels.cuda.shared_attention import num_shared_slots, shared_attention
from pagoda.kernels.cuda.tiles import PageTiles


class HeadShape(NamedTuple):
    """Of a layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int = 0

    @property
    def plan_kind(self) -> PlanKind:
        return PlanKind(self.num_kv_heads, self.window)


class Attention:
    """Holds the workspaces that all layers of a shape share, and the plans of a step; one step at a time may use them.

    Layers of a step differ in their pages alone: what one has launched, the next launches again.
    """

    def __init__(self, device: torch.device, max_rows: int, shapes: Iterable[HeadShape]) -> None:
        self._tiles: dict[int, PageTiles] = {}  # by where the keys lie
        self._workspaces: dict[HeadShape, DecodeWorkspace] = {}
        self._plans: dict[PlanKind, DecodePlan] = {}
        for shape in sorted(set(shapes)):  # all that a step may need is made before the first
            kind, heads = shape.plan_kind, shape._replace(window=0)
            if kind not in self._plans:
                self._plans[kind] = DecodePlan.of(kind, max_rows, device)
            if heads not in self._workspaces:
                room = num_shared_slots(max_rows, shape.num_heads, shape.num_kv_heads)
                self._workspaces[heads] = decode_workspace(max_rows, *heads[:3], device, room)

    def prepare(self, batch: DeviceBatch) -> None:
        """Before the first layer of a step: who reads what of its rows that decode. Launches only."""
        if batch.num_decoding:
            shared_lens = None if batch.shared is None else batch.shared.shared_lens
            for kind, plan in self._plans.items():
                plan.make(batch.decoding.lens, None if kind.window else shared_lens)

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
        shape = HeadShape(queries.shape[1], *pages.keys.shape[2:])
        workspace, plan = self._workspaces[shape], self._plans[shape._replace(window=window).plan_kind]
        where = (out, queries, pages.keys, pages.values, batch.decoding.page_tables[group], plan)
        tiles = self._tiles_of(pages)
        if batch.shared is not None and not window:
            return shared_attention(*where, batch.shared, scale, workspace, page_tiles=tiles)
        return [decode_attention(*where, scale, workspace, fresh=fresh, page_tiles=tiles)]

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
        return bytes_of(*self._workspaces.values(), *self._plans.values())
