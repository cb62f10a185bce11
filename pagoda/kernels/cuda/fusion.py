"""Calls that are cheaper together: products of one input, a sum and the norm of it, heads and their way into pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pagoda.kernels.cuda.recorder import Add, Call, Gated, Linear, Norm, Rope, WritePages
from pagoda.kernels.symbol import Symbol


@dataclass(frozen=True, eq=False, kw_only=True)
class Project(Call):
    """Several products of one input as one: the parts stand side by side in the columns of `out`."""

    products: tuple[Linear, ...]
    takes_bytes: bool = False
    """The input is fp8 with a scale a row, and so are the weights."""

    @property
    def is_head(self) -> bool:
        return self.products[0].is_head


@dataclass(frozen=True, eq=False, kw_only=True)
class AddNorm(Call):
    """`total` is the sum, `out` its norm."""

    total: Symbol
    norm: Norm
    makes_bytes: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class RopeWrite(Call):
    """Reads queries, keys and values of one product; `out` are the queries, the rest goes to pages."""

    query_norm: Norm | None
    key_norm: Norm | None
    table: int
    layer: int
    group: int


@dataclass(frozen=True, eq=False, kw_only=True)
class PlainNorm(Call):
    norm: Norm
    makes_bytes: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Gate(Call):
    is_gelu: bool
    makes_bytes: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantize(Call):
    makes_bytes: bool = True


MakesBytes = AddNorm | PlainNorm | Gate | Quantize


def fuse(calls: Iterable[Call], num_values: int, in_bytes: bool = False) -> list[Call]:
    """`in_bytes`: products of the layers take fp8; those of logits do not."""
    fused = _join_products(calls, num_values)
    fused = _join_heads(fused)
    fused = _join_sums(fused)
    return _with_bytes(fused) if in_bytes else fused


def _join_products(calls: Iterable[Call], num_values: int) -> list[Call]:
    fused: list[Call] = []
    for call in calls:
        if not isinstance(call, Linear):
            fused.append(call)
            continue
        last = fused[-1] if fused else None
        if isinstance(last, Project) and last.reads[0].value == call.reads[0].value:
            products = (*last.products, call)
            fused[-1] = _project(products, last.out)
        else:
            out = Symbol(num_values, call.weight.shape[0], call.reads[0].is_rows)
            num_values += 1
            fused.append(_project((call,), out))
    return fused


def _project(products: tuple[Linear, ...], out: Symbol | None) -> Project:
    assert out is not None
    width = sum(product.weight.shape[0] for product in products)
    return Project(reads=products[0].reads, out=Symbol(out.value, width, out.is_rows), products=products)


def _join_heads(calls: list[Call]) -> list[Call]:
    """Norms of heads, two ropes and the write that follow a product become one call."""
    fused: list[Call] = []
    for call in calls:
        if not isinstance(call, WritePages):
            fused.append(call)
            continue
        taken: list[Call] = []
        while not isinstance(fused[-1], Project):
            taken.insert(0, fused.pop())
        ropes = [one for one in taken if isinstance(one, Rope)]
        norms = [one for one in taken if isinstance(one, Norm)]
        if len(ropes) != 2 or len(norms) not in (0, 2) or len(ropes) + len(norms) != len(taken):
            raise NotImplementedError("this forward pass treats queries and keys in a way unknown on CUDA")
        query_rope = ropes[0]
        parts = tuple(product.out for product in fused[-1].products)
        fused.append(
            RopeWrite(
                reads=tuple(part for part in parts if part is not None),
                out=query_rope.out,
                query_norm=norms[0] if norms else None,
                key_norm=norms[1] if norms else None,
                table=query_rope.table,
                layer=call.layer,
                group=call.group,
            )
        )
    return fused


def _join_sums(calls: list[Call]) -> list[Call]:
    fused: list[Call] = []
    for call in calls:
        last = fused[-1] if fused else None
        if isinstance(call, Norm):
            if isinstance(last, Add) and last.out is not None and last.out.value == call.reads[0].value:
                fused[-1] = AddNorm(reads=last.reads, out=call.out, total=last.out, norm=call)
            else:
                fused.append(PlainNorm(reads=call.reads, out=call.out, norm=call))
        elif isinstance(call, Gated):
            fused.append(Gate(reads=call.reads, out=call.out, is_gelu=call.is_gelu))
        else:
            fused.append(call)
    return fused


def _with_bytes(calls: list[Call]) -> list[Call]:
    """Let whoever makes the input of a product round it to fp8 at once; where that cannot be, a call does it."""
    wanted = Counter(call.reads[0].value for call in calls if _is_in_layers(call))
    read = Counter(symbol.value for call in calls for symbol in call.reads)
    fused: list[Call] = []
    for call in calls:
        out = call.out
        is_asked = out is not None and 0 < wanted[out.value] == read[out.value]
        if is_asked and isinstance(call, AddNorm | PlainNorm | Gate):
            fused.append(replace(call, makes_bytes=True))
        elif _is_in_layers(call):
            assert isinstance(call, Project)
            x = call.reads[0]
            if not any(isinstance(one, MakesBytes) and one.makes_bytes and _is_same(one.out, x) for one in fused):
                rounded = Symbol(-1 - x.value, x.width, x.is_rows)
                fused.append(Quantize(reads=(x,), out=rounded))
                x = rounded
            fused.append(replace(call, reads=(x,), takes_bytes=True))
        else:
            fused.append(call)
    return fused


def _is_in_layers(call: Call) -> bool:
    return isinstance(call, Project) and not call.is_head


def _is_same(one: Symbol | None, other: Symbol) -> bool:
    return one is not None and one.value == other.value
