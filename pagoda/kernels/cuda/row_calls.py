"""The calls of a forward pass, joined further for a single row: norms go into the product after them, sums into the one
before, gates into their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.kernels.cuda.fusion import AddNorm, Gate, PlainNorm, Project
from pagoda.kernels.cuda.recorder import Call, Norm, TakeRows
from pagoda.kernels.symbol import Symbol


@dataclass(frozen=True, eq=False, kw_only=True)
class RowProject(Project):
    """`reads` are the input and, where there is one, the residual. A gated one has no parts: `out` is the gate's."""

    norm: Norm | None = None
    has_residual: bool = False
    is_gated: bool = False


def join_for_row(calls: Sequence[Call]) -> list[Call] | None:
    """`calls` are those of `fuse`, without fp8. None: the model does something that does not fit this form."""
    joined: list[Call] = []
    num_reads = Counter(symbol.value for call in calls for symbol in call.reads)
    normed: dict[int, tuple[Symbol, Norm]] = {}  # by the value that the norm would make: its input, and the norm
    same: dict[int, Symbol] = {}  # of one row its rows are itself
    for plain in calls:
        call = replace(plain, reads=tuple(same.get(symbol.value, symbol) for symbol in plain.reads))
        match call:
            case AddNorm():
                last = joined[-1]
                x, y = call.reads
                if not isinstance(last, RowProject) or last.is_gated or not _makes(last, y) or num_reads[y.value] != 1:
                    return None
                joined[-1] = replace(last, reads=(last.reads[0], x), out=call.total, has_residual=True)
                _keep(normed, call.out, call.total, call.norm)
            case PlainNorm():
                _keep(normed, call.out, call.reads[0], call.norm)
            case TakeRows():
                assert call.out is not None
                same[call.out.value] = call.reads[0]
            case Project():
                x, norm = normed.get(call.reads[0].value, (call.reads[0], None))
                joined.append(RowProject(reads=(x,), out=call.out, products=call.products, norm=norm))
            case Gate():
                last = joined[-1]
                if call.is_gelu or not isinstance(last, RowProject) or not _makes_gate(last, call):
                    return None
                joined[-1] = replace(last, out=call.out, is_gated=True)
            case _:
                if any(symbol.value in normed for symbol in call.reads):
                    return None
                joined.append(call)
    return joined


def _keep(normed: dict[int, tuple[Symbol, Norm]], out: Symbol | None, x: Symbol, norm: Norm) -> None:
    assert out is not None
    normed[out.value] = (x, norm)


def _makes(call: RowProject, symbol: Symbol) -> bool:
    """Whether the product makes this value and nothing else."""
    return [product.out.value for product in call.products if product.out is not None] == [symbol.value]


def _makes_gate(call: RowProject, gate: Gate) -> bool:
    parts = [product.out.value for product in call.products if product.out is not None]
    has_bias = any(product.bias is not None for product in call.products)
    return not has_bias and not call.has_residual and parts == [symbol.value for symbol in gate.reads]
