"""Options made from a record: every field, its type, its default, its line of text."""

from __future__ import annotations

import argparse
from typing import Literal

import msgspec
import pytest

from pagoda.cli.settings import SettingOptions, field_texts, settings_of
from pagoda.core.config import EngineConfig


class Example(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "x"
    """A name. With 5 % more."""
    kind: Literal["a", "b"] = "a"
    """A choice."""
    size: int | None = None
    """A size; None: what fits."""
    share: float = 0.5
    """A share."""
    has_cache: bool = True
    """Keep it."""
    bare: int = 1


def parse(options: SettingOptions, *arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="p", exit_on_error=False)
    options.add_to(parser.add_argument_group("engine"))
    return options.given(parser.parse_args(arguments))


def test_only_what_was_said_is_given() -> None:
    assert parse(SettingOptions(Example)) == {}
    given = parse(SettingOptions(Example), "--size", "3", "--no-has-cache", "--kind", "b", "--share", "0.25")
    assert given == {"size": 3, "has_cache": False, "kind": "b", "share": 0.25}
    assert Example(**given).size == 3


def test_a_callers_own_defaults_are_given_unless_something_else_is_said() -> None:
    options = SettingOptions(Example, left_out=("name",), own_defaults={"size": 1})
    assert parse(options) == {"size": 1}
    assert parse(options, "--size", "2") == {"size": 2}
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parse(options, "--name", "y")


@pytest.mark.parametrize("arguments", [["--size", "much"], ["--kind", "c"]])
def test_a_value_of_another_type_is_refused(arguments: list[str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parse(SettingOptions(Example), *arguments)


def test_help_tells_meaning_and_default() -> None:
    parser = argparse.ArgumentParser(prog="p")
    SettingOptions(Example, own_defaults={"share": 0.75}).add_to(parser.add_argument_group("engine"))
    text = " ".join(parser.format_help().split())
    assert "a name. With 5 % more (default: x)" in text
    assert "--size N a size (default: what fits)" in text
    assert "keep it (default: on)" in text
    assert "a share (default: 0.75)" in text


def test_every_engine_setting_has_its_line() -> None:
    assert set(field_texts(EngineConfig)) == set(EngineConfig.__struct_fields__)
    assert all(setting.meaning and "\n" not in setting.meaning for setting in settings_of(EngineConfig))
