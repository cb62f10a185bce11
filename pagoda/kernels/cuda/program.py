"""A recorded forward pass with a place for every value: run call by call, or inside a graph that is being captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from pagoda.kernels.base import KVPages, RopeFrequencies, Weight
from pagoda.kernels.cuda import fusion
from pagoda.kernels.cuda import recorder as recorded
from pagoda.kernels.cuda.activation import gated, quantize
from pagoda.kernels.cuda.attention import Attention
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.linear import Matrix, workspace_for
from pagoda.kernels.cuda.norm import add_rms_norm, rms_norm
from pagoda.kernels.cuda.places import Places
from pagoda.kernels.cuda.recorder import Call, Recorder
from pagoda.kernels.cuda.rope_write import HeadNorms, rope_write
from pagoda.kernels.cuda.weights import DeviceWeights
from pagoda.kernels.reference.rope import rope_table
from pagoda.kernels.symbol import Symbol

Step = Callable[[DeviceBatch, int], None]
"""Takes the batch and the number of tokens; a step behind `take_rows` takes the number of rows of logits."""


class Program:
    """`run` computes the hidden states of a batch, `logits` those of some of its tokens.

    Every buffer is made once, for `max_tokens` tokens and `max_logits` rows of logits, and lies still: what a graph has
    captured stays true.
    """

    def __init__(
        self,
        recorder: Recorder,
        logits: Symbol,
        weights: DeviceWeights,
        *,
        max_tokens: int,
        max_logits: int,
        max_positions: int,
        in_bytes: bool = False,
    ) -> None:
        self._weights = weights
        self._layers: list[KVPages] = recorder.layers
        self._logit_tokens = torch.zeros(0, dtype=torch.int32, device=weights.device)
        self._ropes = [_rope_tables(rope, max_positions, weights.device) for rope in recorder.ropes]
        self._rope_is_interleaved = [rope.interleaved for rope in recorder.ropes]
        calls = fusion.fuse(recorder.calls, recorder.num_values, in_bytes)
        self._places = Places(calls, logits, weights.device, weights.dtype, max_tokens, max_logits)
        self._attention = Attention(weights.device, max_logits, max_positions)
        self.max_logits = max_logits
        self._body: list[Step] = []
        self._head: list[Step] = []
        self._matrices: list[Matrix] = []
        self._gated_product: Matrix | None = None  # the product whose gate comes next, where it can do that too
        for call, after in zip(calls, [*calls[1:], None], strict=True):
            in_head = call.out is not None and call.out.is_rows
            (self._head if in_head else self._body).append(self._step(call, after))
        self._logits = logits
        self._linear_workspace = workspace_for(self._matrices, weights.device)
        weights.finish()

    def run(self, batch: DeviceBatch) -> None:
        for step in self._body:
            step(batch, batch.num_tokens)

    def logits(self, batch: DeviceBatch, logit_tokens: torch.Tensor) -> torch.Tensor:
        """The logits of some tokens of the batch that ran last, at most `max_logits` at once."""
        self._logit_tokens = logit_tokens
        for step in self._head:
            step(batch, len(logit_tokens))
        return self._places.view(self._logits, len(logit_tokens))

    def bind(self, layers: Sequence[KVPages]) -> None:
        """The pages to work on; they may be made after everything else has taken its memory."""
        self._layers = list(layers)

    def num_bytes(self) -> int:
        return self._places.num_bytes() + self._attention.num_bytes()

    def _step(self, call: Call, after: Call | None) -> Step:
        match call:
            case recorded.Embed():
                return partial(self._embed, call, self._weights.matrix((call.weight,)))
            case fusion.Project():
                gate = after if isinstance(after, fusion.Gate) and _is_joinable(call, after) else None
                matrix = self._matrix(call)
                self._gated_product = matrix if gate is not None else None
                return partial(self._project, call, matrix, gate)
            case fusion.PlainNorm():
                return partial(self._norm, call, self._weights.vector(call.norm.weight))
            case fusion.AddNorm():
                return partial(self._add_norm, call, self._weights.vector(call.norm.weight))
            case fusion.RopeWrite():
                return partial(self._rope_write, call, self._head_norms(call))
            case recorded.Attend():
                return partial(self._attend, call)
            case fusion.Gate():
                return partial(self._gate, call, self._gated_product)
            case fusion.Quantize():
                return partial(self._quantize, call)
            case recorded.TakeRows():
                return partial(self._take_rows, call)
            case recorded.Add():
                return partial(self._add, call)
            case recorded.Scale():
                return partial(self._scale, call)
            case recorded.SoftCap():
                return partial(self._soft_cap, call)
        raise NotImplementedError(f"{type(call).__name__} is unknown on CUDA")

    def _matrix(self, call: fusion.Project) -> Matrix:
        products = call.products
        weights: Sequence[Weight] = [product.weight for product in products]
        bias = self._weights.bias([product.bias for product in products], [weight.shape[0] for weight in weights])
        if call.takes_bytes:
            matrix = Matrix(*self._weights.fp8_matrix(weights), bias=bias)
        else:
            matrix = Matrix(self._weights.matrix(weights), bias=bias)
        self._matrices.append(matrix)
        return matrix

    def _head_norms(self, call: fusion.RopeWrite) -> HeadNorms | None:
        if call.query_norm is None or call.key_norm is None:
            return None
        vectors = self._weights.vector(call.query_norm.weight), self._weights.vector(call.key_norm.weight)
        return HeadNorms(*vectors, call.query_norm.epsilon, call.query_norm.offset)

    def _embed(self, call: Call, matrix: torch.Tensor, batch: DeviceBatch, count: int) -> None:
        torch.index_select(matrix, 0, batch.token_ids, out=self._places.view(call.out, count))

    def _project(
        self, call: fusion.Project, matrix: Matrix, gate: fusion.Gate | None, _batch: DeviceBatch, count: int
    ) -> None:
        x = call.reads[0]
        scales = self._places.scales(x, count) if call.takes_bytes else None
        is_gated = gate is not None and matrix.is_small(count)
        out = self._places.view(gate.out if gate is not None and is_gated else call.out, count)
        matrix.multiply(self._places.view(x, count), out, self._linear_workspace, scales, is_gated)

    def _norm(self, call: fusion.PlainNorm, weight: torch.Tensor, _batch: DeviceBatch, count: int) -> None:
        x, out = self._places.view(call.reads[0], count), self._places.view(call.out, count)
        width = len(weight)
        if x.shape[1] != width:  # over heads
            x, out = x.reshape(-1, width), out.view(-1, width)
        scales = self._places.scales(call.out, count) if call.makes_bytes else None
        rms_norm(out, x, weight, call.norm.epsilon, call.norm.offset, scales)

    def _add_norm(self, call: fusion.AddNorm, weight: torch.Tensor, _batch: DeviceBatch, count: int) -> None:
        view = self._places.view
        x, y = call.reads
        scales = self._places.scales(call.out, count) if call.makes_bytes else None
        norm = call.norm
        out, total = view(call.out, count), view(call.total, count)
        add_rms_norm(out, total, view(x, count), view(y, count), weight, norm.epsilon, norm.offset, scales)

    def _rope_write(self, call: fusion.RopeWrite, norms: HeadNorms | None, batch: DeviceBatch, count: int) -> None:
        pages = self._layers[call.layer]
        head_dim = pages.keys.shape[-1]
        cosines, sines = self._ropes[call.table]
        rope_write(
            self._places.view(call.out, count).view(count, -1, head_dim),
            pages.keys,
            pages.values,
            self._places.whole(call.reads[0], count),
            cosines,
            sines,
            self._rope_is_interleaved[call.table],
            norms,
            batch.positions,
            batch.entries,
            batch.context_lens,
            batch.page_tables[call.group],
        )

    def _attend(self, call: recorded.Attend, batch: DeviceBatch, count: int) -> None:
        pages: KVPages = self._layers[call.layer]
        head_dim = pages.keys.shape[-1]
        queries = self._places.view(call.reads[0], count).view(count, -1, head_dim)
        out = self._places.view(call.out, count).view(count, -1, head_dim)
        self._attention(out, queries, pages, batch, call.group, call.scale, call.window)

    def _gate(self, call: fusion.Gate, product: Matrix | None, _batch: DeviceBatch, count: int) -> None:
        if product is not None and product.is_small(count):
            return  # the product has done it
        gate, up = (self._places.view(symbol, count) for symbol in call.reads)
        scales = self._places.scales(call.out, count) if call.makes_bytes else None
        gated(self._places.view(call.out, count), gate, up, call.is_gelu, scales)

    def _quantize(self, call: Call, _batch: DeviceBatch, count: int) -> None:
        x, out = self._places.view(call.reads[0], count), self._places.view(call.out, count)
        quantize(out, self._places.scales(call.out, count), x)

    def _take_rows(self, call: Call, batch: DeviceBatch, count: int) -> None:
        hidden = self._places.view(call.reads[0], batch.num_tokens)
        torch.index_select(hidden, 0, self._logit_tokens, out=self._places.view(call.out, count))

    def _add(self, call: Call, _batch: DeviceBatch, count: int) -> None:
        x, y = (self._places.view(symbol, count) for symbol in call.reads)
        torch.add(x, y, out=self._places.view(call.out, count))

    def _scale(self, call: recorded.Scale, _batch: DeviceBatch, count: int) -> None:
        torch.mul(self._places.view(call.reads[0], count), call.factor, out=self._places.view(call.out, count))

    def _soft_cap(self, call: recorded.SoftCap, _batch: DeviceBatch, count: int) -> None:
        x, out = self._places.view(call.reads[0], count), self._places.view(call.out, count)
        torch.div(x, call.cap, out=out)
        out.tanh_().mul_(call.cap)


def _is_joinable(call: fusion.Project, gate: fusion.Gate) -> bool:
    """Whether the product's two parts are the gate's inputs, and nothing stands between."""
    parts = [product.out.value for product in call.products if product.out is not None]
    has_bias = any(product.bias is not None for product in call.products)
    is_plain = not (gate.is_gelu or gate.makes_bytes or has_bias)
    return is_plain and parts == [symbol.value for symbol in gate.reads]


def _rope_tables(rope: RopeFrequencies, num_positions: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, [positions, rotary_dim / 2], as the reference rounds them."""
    table: Any = rope_table(np.arange(num_positions, dtype=np.int32), rope)
    return torch.from_numpy(table.cos).to(device), torch.from_numpy(table.sin).to(device)
