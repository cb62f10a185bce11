"""Command-line options made from a record of settings: name, type, default and the line of text after each field."""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec


@dataclass(frozen=True)
class Setting:
    name: str
    type: Any
    """The field's type without None."""
    default: Any
    meaning: str

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


def settings_of(record: type[msgspec.Struct]) -> Iterator[Setting]:
    meanings = field_texts(record)
    types = get_type_hints(record)
    for field in msgspec.structs.fields(record):
        yield Setting(field.name, _without_none(types[field.name]), field.default, meanings.get(field.name, ""))


def field_texts(record: type) -> dict[str, str]:
    """The string that stands after each field in the source of the class."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            texts[field.target.id] = inspect.cleandoc(after.value.value)
    return texts


class SettingOptions:
    """The options of one record. `own_defaults` are the caller's where they differ from the record's."""

    def __init__(
        self,
        record: type[msgspec.Struct],
        left_out: Collection[str] = (),
        own_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = [setting for setting in settings_of(record) if setting.name not in left_out]
        self._own_defaults = dict(own_defaults or {})

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        for setting in self._settings:
            default, meaning = setting.default, setting.meaning
            if setting.name in self._own_defaults:
                default, meaning = self._own_defaults[setting.name], meaning.partition("; on CUDA")[0]
            # An option that is not given leaves no trace, so that the record's own default applies.
            how: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _help(meaning, default)}
            if setting.type is bool:
                how["action"] = argparse.BooleanOptionalAction
            elif get_origin(setting.type) is tuple:
                how |= {"action": "append", "metavar": "TEXT"}
                how["help"] = _help(meaning + " May be given several times.", None)
            elif get_origin(setting.type) is Literal:
                how["choices"] = get_args(setting.type)
            else:
                how["type"] = setting.type
                how["metavar"] = {int: "N", float: "X"}.get(setting.type, "TEXT")
            group.add_argument(setting.option, **how)

    def given(self, args: argparse.Namespace) -> dict[str, Any]:
        """Values by field name: the caller's defaults, and what the command line said."""
        said = vars(args)
        found = {s.name: said[s.name] for s in self._settings if s.name in said}
        return self._own_defaults | {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}


def _help(meaning: str, default: Any) -> str:
    """`Tokens in a step; None: all.` becomes `tokens in a step (default: all)`."""
    text, _, without = meaning.rstrip(".").partition("; None: ")
    shown = ("on" if default else "off") if isinstance(default, bool) else default
    if default is None:
        shown = without
    rest_of_word = text.partition(" ")[0][1:]
    if rest_of_word == rest_of_word.lower():  # a name such as OpenTelemetry stays as it is
        text = text[:1].lower() + text[1:]
    text += f" (default: {shown})" if shown not in (None, "") else ""
    return text.replace("%", "%%")


def _without_none(kind: Any) -> Any:
    rest = [part for part in get_args(kind) if part is not NoneType]
    return rest[0] if get_origin(kind) is not Literal and len(rest) == 1 else kind
