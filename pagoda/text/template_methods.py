"""The methods of plain values that a template may call, and what each is checked for before it runs."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any

from jinja2.exceptions import SecurityError

from pagoda.core.errors import TemplateError
from pagoda.text.template_budget import counted_list, current_budget, measure

# fmt: off
_PLAIN_TEXT_METHODS = frozenset((
    "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal",
    "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "lower",
    "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip",
    "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
))
# fmt: on
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill"))
_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
}
_PERCENT_FIELD = re.compile(r"%(?:\([^()]*\))?(.?)", re.DOTALL)


def check_method(owner: Any, name: str, arguments: tuple[Any, ...]) -> None:
    """Raise unless a template may call this method of a built-in value with these arguments."""
    if isinstance(owner, str):
        _check_text_method(owner, name, arguments)
        return
    for kind, allowed in _METHODS.items():
        if isinstance(owner, kind) and name in allowed:
            return
    raise SecurityError(f"a template may not call {name!r} of a {type(owner).__name__}")


def join_text(separator: str, items: Any) -> str:
    parts = counted_list(items)
    current_budget().allow_size(sum(map(measure, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def check_replace(text: str, old: str, new: str) -> None:
    current_budget().allow_size(len(text) + text.count(old) * len(new))


def check_percent_format(text: str, arguments: Any) -> None:
    """`%s` and its like, without widths: a width could ask for any amount of text."""
    fields = _PERCENT_FIELD.findall(text)
    if any(conversion not in "sdrifg%" or not conversion for conversion in fields):
        raise SecurityError("a template may use '%' on text with plain conversions such as %s only")
    current_budget().allow_size(len(text) + max(len(fields), 1) * measure(arguments))


def guard_format(text: str, formatted: Callable[..., str]) -> Callable[..., str]:
    """`str.format` with plain fields only: no widths, no attributes."""

    def guarded(*arguments: Any, **named: Any) -> str:
        num_fields = 0
        for _, field, specification, _ in string.Formatter().parse(text):
            if specification or (field and not field.isalnum() and not field.isidentifier()):
                raise SecurityError("a template may use format() with plain fields such as {} and {name} only")
            num_fields += field is not None
        current_budget().allow_size(len(text) + num_fields * measure((arguments, named)))
        return formatted(*arguments, **named)

    return guarded


def _check_text_method(owner: str, name: str, arguments: tuple[Any, ...]) -> None:
    if name in _PLAIN_TEXT_METHODS:
        return
    if name in _PADDING_METHODS and arguments:
        current_budget().allow_size(_whole_number(arguments[0]))
    elif name == "expandtabs":
        current_budget().allow_size(len(owner) + owner.count("\t") * _whole_number(arguments[0] if arguments else 8))
    elif name == "replace" and len(arguments) >= 2 and all(isinstance(part, str) for part in arguments[:2]):
        check_replace(owner, arguments[0], arguments[1])
    elif name != "join":
        raise SecurityError(f"a template may not call {name!r} of a text that way")


def _whole_number(value: Any) -> int:
    if not isinstance(value, int):
        raise TemplateError("the chat template gave a width that is not a whole number")
    return value
