"""The filters and tests that templates may use, each charged for what it is given and checked for what it makes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from jinja2.filters import FILTERS
from jinja2.runtime import Undefined
from jinja2.tests import TESTS

from pagoda.core.errors import TemplateError
from pagoda.text.template_budget import counted, counted_list, current_budget, measure
from pagoda.text.template_methods import check_percent_format, check_replace

_LARGEST_PRECISION = 100
_LARGEST_INDENT = 64

# Filters whose work follows the size of what they are given. Left out are those that only serve HTML.
# fmt: off
_PLAIN_FILTERS = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "forceescape",
    "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "reverse", "safe", "select", "selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper",
    "urlencode", "wordcount",
)
# fmt: on


def build_filters() -> dict[str, Callable[..., Any]]:
    guarded = {name: _guarded(FILTERS[name], _charge) for name in _PLAIN_FILTERS}
    checks: dict[str, Callable[..., None]] = {
        "batch": _check_width,
        "center": _check_width,
        "format": lambda value, *arguments, **named: check_percent_format(str(value), arguments or named),
        "indent": _check_indent,
        "replace": lambda value, old, new, count=None: check_replace(str(value), str(old), str(new)),
        "round": _check_precision,
        "slice": _check_width,
    }
    guarded.update({name: _guarded(FILTERS[name], check) for name, check in checks.items()})
    guarded.update(join=_join, sum=_sum, tojson=_to_json)
    return guarded


def build_tests() -> dict[str, Callable[..., Any]]:
    return {name: _guarded(test, _charge) for name, test in TESTS.items()}


def _guarded(function: Any, check: Callable[..., None]) -> Callable[..., Any]:
    """`function` after `check`, with a check of what it returns. Jinja's mark for a context argument is kept."""
    mark = getattr(function, "jinja_pass_arg", None)

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        check(*(arguments[1:] if mark is not None else arguments), **named)
        result = function(*arguments, **named)
        if _is_lazy(result):
            return counted(result)
        return current_budget().check_value(result)

    return guarded


def _is_lazy(value: Any) -> bool:
    return hasattr(value, "__next__")


def _charge(value: Any = None, *arguments: Any, **named: Any) -> None:
    budget = current_budget()
    if isinstance(value, list | tuple | dict):
        budget.count_iterations(1 + len(value) // 16)
    else:
        budget.check_time()


def _check_width(value: Any, width: int = 80, *arguments: Any, **named: Any) -> None:
    if not isinstance(width, int):
        raise TemplateError("the chat template gave a filter a width that is not a whole number")
    _charge(value)
    current_budget().count_iterations(width // 64)


def _check_indent(value: Any, width: int | str = 4, *arguments: Any, **named: Any) -> None:
    text = str(value)
    added = width if isinstance(width, int) else len(str(width))
    current_budget().allow_size(len(text) + (text.count("\n") + 1) * max(added, 0))


def _check_precision(value: Any, precision: int = 0, *arguments: Any, **named: Any) -> None:
    if not isinstance(precision, int) or abs(precision) > _LARGEST_PRECISION:
        raise TemplateError(f"the chat template rounds to more than {_LARGEST_PRECISION} digits")


def _join(value: Any, d: str = "", attribute: str | int | None = None) -> str:
    items = counted_list(value)
    if attribute is not None:
        items = [_member(item, attribute) for item in items]
    separator = str(d)
    current_budget().allow_size(sum(map(measure, items)) + len(separator) * len(items))
    return separator.join(map(str, items))


def _member(item: Any, attribute: str | int) -> Any:
    for name in str(attribute).split("."):
        key: Any = int(name) if name.isdecimal() else name
        try:
            item = item[key]
        except (KeyError, IndexError, TypeError):
            return Undefined(name=name)
    return item


def _sum(iterable: Any, attribute: str | int | None = None, start: float = 0) -> float:
    """Numbers only: adding up lists takes time that grows with the square of their length."""
    total = start
    for item in counted(iterable):
        number = item if attribute is None else _member(item, attribute)
        if not isinstance(number, int | float) or not isinstance(total, int | float):
            raise TemplateError("the chat template adds up values that are not numbers")
        total += number
    current_budget().check_value(total)
    return total


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    budget = current_budget()
    num_bytes = measure(value, budget.max_value_bytes)
    if indent is not None:
        step = indent if isinstance(indent, int) else len(indent)
        if step > _LARGEST_INDENT:
            raise TemplateError(f"the chat template indents JSON by more than {_LARGEST_INDENT}")
        num_bytes += _num_indented(value, budget.max_value_bytes) * max(step, 0)
    if separators is not None:
        num_bytes += measure(value, budget.max_value_bytes) // 8 * measure(separators)
    budget.allow_size(num_bytes)
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    budget.check_time()
    return text


def _num_indented(value: Any, enough: int) -> int:
    """The sum of the depths of all items: how many steps of indentation their lines take."""
    total = 0
    waiting = [(value, 1)]
    while waiting and total <= enough:
        current, depth = waiting.pop()
        children = list(current.values()) if isinstance(current, dict) else current
        if isinstance(children, list | tuple):
            total += depth * (len(children) + 1)
            waiting.extend((child, depth + 1) for child in children)
    return total
