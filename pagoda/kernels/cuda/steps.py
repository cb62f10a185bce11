"""The calls of a forward pass as launches on buffers that lie still."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from pagoda.kernels.base import KVPages, Weight
from pagoda.kernels.cuda import fusion
from pagoda.kernels.cuda import recorder as recorded
from pagoda.kernels.cuda.activation import gated, quantize
from pagoda.kernels.cuda.attention import Attention
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.deterministic import FixedMatrix
from pagoda.kernels.cuda.deterministic import workspace_for as fixed_workspace_for
from pagoda.kernels.cuda.linear import Matrix, workspace_for
from pagoda.kernels.cuda.narrow_linear import NARROW_BITS, NarrowMatrix
from pagoda.kernels.cuda.norm import add_rms_norm, rms_norm
from pagoda.kernels.cuda.places import Places
from pagoda.kernels.cuda.recorder import Call
from pagoda.kernels.cuda.rope_write import FreshHeads, HeadNorms, rope_write
from pagoda.kernels.cuda.row_calls import RowProject
from pagoda.kernels.cuda.small_linear import LinearWorkspace
from pagoda.kernels.cuda.weights import DeviceWeights
from pagoda.kernels.symbol import Symbol

Step = Callable[[DeviceBatch, int], None]
"""Takes the batch and the number of tokens; a step of some tokens alone, how many those are."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Launches one after the other: an attention, or all that lies before, between or behind attentions. These last
    depend on the batch by its number of tokens alone: all else they find in memory that lies still."""

    steps: tuple[Step, ...]
    is_attention: bool

    def launch(self, batch: DeviceBatch) -> None:
        count = batch.num_tokens
        for step in self.steps:
            step(batch, count)


@dataclass(eq=False)
class Common:
    """What every form of a program works with."""

    weights: DeviceWeights
    quantization: str
    """What the weights of the layers' products are kept in; with fp8 so are their inputs."""
    layers: list[KVPages]
    ropes: list[tuple[torch.Tensor, torch.Tensor]]
    interleaved: list[bool]
    attention: Attention
    deterministic: bool = False
    """A row's sums do not depend on the rows beside it."""
    matrices: dict[tuple[int, ...], Matrix] = field(default_factory=dict)
    workspace: LinearWorkspace | None = None

    def matrix(self, call: fusion.Project) -> Matrix:
        weights: Sequence[Weight] = [product.weight for product in call.products]
        kind_of_numbers = "none" if call.is_head else self.quantization
        key = tuple(map(id, weights))
        if key not in self.matrices:
            widths = [weight.shape[0] for weight in weights]
            bias = self.weights.bias([product.bias for product in call.products], widths)
            kind = FixedMatrix if self.deterministic else Matrix
            if kind_of_numbers in NARROW_BITS:
                bits = NARROW_BITS[kind_of_numbers]
                parts = self.weights.narrow_matrix(weights, bits)
                self.matrices[key] = NarrowMatrix(*parts, bias=bias, bits=bits, num_in=weights[0].shape[1])
            elif kind_of_numbers == "fp8":
                self.matrices[key] = kind(*self.weights.fp8_matrix(weights), bias=bias)
            else:
                self.matrices[key] = kind(self.weights.matrix(weights), bias=bias)
        return self.matrices[key]

    @property
    def linear_workspace(self) -> LinearWorkspace:
        if self.workspace is None:
            make = fixed_workspace_for if self.deterministic else workspace_for
            self.workspace = make(self.matrices.values(), self.weights.device, self.weights.dtype)
        return self.workspace


class Steps:
    """`run` computes a batch up to its last attention, and so do its `pieces`; `logits` goes on with some tokens."""

    def __init__(self, common: Common, calls: Sequence[Call], logits: Symbol, max_tokens: int, max_logits: int) -> None:
        self._common = common
        weights = common.weights
        self._places = Places(calls, logits, weights.device, weights.dtype, max_tokens, max_logits)
        self._logits = logits
        self._hidden = next(call.reads[0] for call in calls if isinstance(call, fusion.Project) and call.is_head)
        self._max_logits = max_logits
        self._logit_tokens = torch.zeros(0, dtype=torch.int32, device=weights.device)
        self._body: list[Step] = []
        self._behind: list[Step] = []  # the last attention: of some tokens only
        self._head: list[Step] = []
        self.pieces: list[Piece] = []
        between: list[Step] = []
        left = deque(calls)
        while left:
            call = left.popleft()
            if isinstance(call, fusion.RopeWrite):
                attend = left.popleft()
                assert isinstance(attend, recorded.Attend), "heads are brought to the pages right before attention"
                norms = self._head_norms(call)
                self._body.append(partial(self._rope_attend, call, norms, attend))
                before = Piece((*between, partial(self._rope_write, call, norms)), is_attention=False)
                self.pieces += [before, Piece((partial(self._attend, attend),), is_attention=True)]
                between = []
            elif _is_of_logits(call):
                is_head = bool(self._head) or (isinstance(call, fusion.Project) and call.is_head)
                (self._head if is_head else self._behind).append(self._step(call))
            else:
                step = self._step(call)
                self._body.append(step)
                between.append(step)
        if between:
            self.pieces.append(Piece(tuple(between), is_attention=False))

    def run(self, batch: DeviceBatch) -> None:
        for step in self._body:
            step(batch, batch.num_tokens)

    def logits(self, batch: DeviceBatch, logit_tokens: torch.Tensor) -> torch.Tensor:
        self._take(batch, logit_tokens)
        for step in self._head:
            step(batch, len(logit_tokens))
        return self._places.view(self._logits, len(logit_tokens))

    def hidden(self, batch: DeviceBatch) -> Iterator[torch.Tensor]:
        """What the last norm gives of the batch that ran last, some tokens at a time."""
        for first in range(0, batch.num_tokens, self._max_logits):
            until = min(first + self._max_logits, batch.num_tokens)
            self._take(batch, torch.arange(first, until, dtype=torch.int32, device=self._common.weights.device))
            yield self._places.view(self._hidden, until - first)

    def _take(self, batch: DeviceBatch, tokens: torch.Tensor) -> None:
        self._logit_tokens = tokens
        for step in self._behind:
            step(batch, len(tokens))

    def num_bytes(self, of_logits: bool) -> int:
        return self._places.num_bytes(of_logits)

    def _step(self, call: Call) -> Step:
        match call:
            case recorded.Embed():
                return partial(self._embed, call, self._common.weights.matrix((call.weight,)))
            case RowProject():
                return partial(self._row_project, call, self._common.matrix(call))
            case fusion.Project():
                return partial(self._project, call, self._common.matrix(call))
            case fusion.PlainNorm():
                return partial(self._norm, call, self._common.weights.vector(call.norm.weight))
            case fusion.AddNorm():
                return partial(self._add_norm, call, self._common.weights.vector(call.norm.weight))
            case fusion.Gate():
                return partial(self._gate, call)
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

    def _head_norms(self, call: fusion.RopeWrite) -> HeadNorms | None:
        if call.query_norm is None or call.key_norm is None:
            return None
        vectors = self._common.weights.vector(call.query_norm.weight), self._common.weights.vector(call.key_norm.weight)
        return HeadNorms(*vectors, call.query_norm.epsilon, call.query_norm.offset)

    def _embed(self, call: Call, matrix: torch.Tensor, batch: DeviceBatch, count: int) -> None:
        torch.index_select(matrix, 0, batch.token_ids, out=self._places.view(call.out, count))

    def _project(self, call: fusion.Project, matrix: Matrix, _batch: DeviceBatch, count: int) -> None:
        x = call.reads[0]
        scales = self._places.scales(x, count) if call.takes_bytes else None
        view = self._places.view
        matrix.multiply(view(x, count), view(call.out, count), self._common.linear_workspace, scales)

    def _row_project(self, call: RowProject, matrix: Matrix, _batch: DeviceBatch, _count: int) -> None:
        view, norm = self._places.view, call.norm
        matrix.multiply_row(
            view(call.out, 1),
            view(call.reads[0], 1),
            self._common.linear_workspace,
            view(call.reads[1], 1) if call.has_residual else None,
            None if norm is None else self._common.weights.vector(norm.weight),
            0.0 if norm is None else norm.epsilon,
            0.0 if norm is None else norm.offset,
            call.is_gated,
        )

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

    def _rope_attend(
        self, rope: fusion.RopeWrite, norms: HeadNorms | None, call: recorded.Attend, batch: DeviceBatch, count: int
    ) -> None:
        if not batch.decodes_alone or self._common.deterministic:
            self._rope_write(rope, norms, batch, count)
            self._attend(call, batch, count)
            return
        cosines, sines = self._common.ropes[rope.table]
        x = self._places.whole(rope.reads[0], count)
        fresh = FreshHeads(x, cosines, sines, self._common.interleaved[rope.table], norms)
        self._attend(call, batch, count, fresh)

    def _rope_write(self, call: fusion.RopeWrite, norms: HeadNorms | None, batch: DeviceBatch, count: int) -> None:
        pages: KVPages = self._common.layers[call.layer]
        cosines, sines = self._common.ropes[call.table]
        rope_write(
            self._places.heads(call.out, count, pages.keys.shape[-1]),
            pages.keys,
            pages.values,
            self._places.whole(call.reads[0], count),
            cosines,
            sines,
            self._common.interleaved[call.table],
            norms,
            batch.positions,
            batch.entries,
            batch.context_lens,
            batch.page_tables[call.group],
        )

    def _attend(self, call: recorded.Attend, batch: DeviceBatch, count: int, fresh: FreshHeads | None = None) -> None:
        pages: KVPages = self._common.layers[call.layer]
        head_dim = pages.keys.shape[-1]
        queries = self._places.heads(call.reads[0], count, head_dim)
        out = self._places.heads(call.out, count, head_dim)
        self._common.attention(out, queries, pages, batch, call.group, call.scale, call.window, fresh)

    def _gate(self, call: fusion.Gate, _batch: DeviceBatch, count: int) -> None:
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


def _is_of_logits(call: Call) -> bool:
    return call.out is not None and call.out.is_rows
