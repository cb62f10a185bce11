"""The settings of `pagoda serve` from a file, the environment and the command line: the last one said counts."""

from __future__ import annotations

import argparse
import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec

from pagoda.cli.settings import SettingOptions
from pagoda.core.config import EngineConfig, device_defaults
from pagoda.core.environment import PAGODA_API_KEY, api_key, serve_variables, variable_of
from pagoda.core.errors import InvalidRequest
from pagoda.core.unreadable import UNREADABLE
from pagoda.server.config import ListenConfig, LogConfig, ProcessSettings, QueueConfig, ServerConfig
from pagoda.server.limits import Limits
from pagoda.weights.registry import DEFAULT_MODEL


@dataclass(frozen=True)
class Section:
    """A table of the file, and a group of options."""

    record: type[msgspec.Struct]
    title: str
    left_out: tuple[str, ...] = ()

    @property
    def fields(self) -> list[str]:
        return [found.name for found in msgspec.structs.fields(self.record) if found.name not in self.left_out]

    @property
    def options(self) -> SettingOptions:
        return SettingOptions(self.record, self.left_out)


SECTIONS = {
    "listen": Section(ListenConfig, "where to listen"),
    "queue": Section(QueueConfig, "waiting"),
    "limits": Section(Limits, "what one request may ask for"),
    "log": Section(LogConfig, "log and traces"),
    "engine": Section(EngineConfig, "engine", left_out=("model",)),
}
PLAIN = ("model", "served_model_name", "api_keys_file")


@dataclass(frozen=True)
class Found:
    """A value, and who said it."""

    value: Any
    source: str = "default"


@dataclass
class ServeSettings:
    """Every setting with its source. Those outside all tables stand in `plain`."""

    plain: dict[str, Found]
    sections: dict[str, dict[str, Found]] = field(default_factory=dict)

    @classmethod
    def read(cls, args: argparse.Namespace) -> ServeSettings:
        content = _read_file(args.config) if args.config else {}
        _check_names(content)
        file = f"file {args.config}"
        plain = {"model": Found(DEFAULT_MODEL), "served_model_name": Found(None), "api_keys_file": Found(None)}
        plain |= {name: Found(_typed(name, str, content[name]), file) for name in PLAIN if name in content}
        plain |= _from_environment(dict.fromkeys(PLAIN, str))
        said = {name: getattr(args, name, None) for name in PLAIN}
        plain |= {name: Found(value, "command line") for name, value in said.items() if value is not None}
        settings = cls(plain)
        for name, section in SECTIONS.items():
            settings.sections[name] = _section(name, section, content.get(name, {}), file, args)
        return settings

    def process_settings(self) -> ProcessSettings:
        parts = {name: self._make(name) for name in SECTIONS if name != "engine"}
        plain = {name: found.value for name, found in self.plain.items()}
        engine = self._make("engine", model=plain.pop("model"))
        assert isinstance(engine, EngineConfig)
        return ProcessSettings(server=ServerConfig(**parts, **plain), engine=engine, model_path="")

    def _make(self, name: str, **more: Any) -> Any:
        found = self.sections[name]
        try:
            return SECTIONS[name].record(**more, **{key: value.value for key, value in found.items()})
        except InvalidRequest as error:
            said_by = found.get(error.field, Found(None)).source
            message = str(error).removeprefix(f"{error.field}: ")
            shown = message if said_by.startswith("default") else f"{message} (said by: {said_by})"
            raise InvalidRequest(error.field, shown) from None

    def as_toml(self) -> Iterator[str]:
        """A file for `--config` that says the same, each line with its source."""
        yield "# Settings of `pagoda serve`; behind each, where it comes from."
        yield from _toml_lines(self.plain)
        if api_key() is not None:
            yield f"# {PAGODA_API_KEY.name} is set."
        for name, found in self.sections.items():
            yield f"\n[{name}]"
            yield from _toml_lines(found)


def _section(
    name: str, section: Section, content: Mapping[str, Any], file: str, args: argparse.Namespace
) -> dict[str, Found]:
    types = get_type_hints(section.record)
    defaults = {found.name: found.default for found in msgspec.structs.fields(section.record)}
    found = {key: Found(defaults[key]) for key in section.fields}
    said = {key: Found(_typed(f"[{name}] {key}", types[key], value), file) for key, value in content.items()}
    said |= _from_environment({key: types[key] for key in section.fields})
    said |= {key: Found(value, "command line") for key, value in section.options.given(args).items()}
    return found | (_with_device(said) if name == "engine" else said)


def _with_device(said: dict[str, Found]) -> dict[str, Found]:
    """What was said of the engine, with the device chosen, above the device's own defaults."""
    device = said.get("device", Found("auto"))
    if device.value == "auto":
        from pagoda.engine.device import choose_device

        device = Found(*choose_device({name: found.value for name, found in said.items()}))
    own = {name: Found(value, f"default on {device.value}") for name, value in device_defaults(device.value).items()}
    return own | said | {"device": device}


def _from_environment(types: Mapping[str, Any]) -> dict[str, Found]:
    found = {}
    for name, text in serve_variables(types).items():
        variable = variable_of(name)
        value: Any = text
        if get_origin(types[name]) is tuple:
            value = [part.strip() for part in text.split(",") if part.strip()]
        found[name] = Found(_typed(variable, types[name], value, strict=False), f"environment {variable}")
    return found


def _typed(name: str, kind: Any, value: Any, strict: bool = True) -> Any:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidRequest(name, f"{str(error)[:1].lower()}{str(error)[1:]}") from None


def _check_names(content: Mapping[str, Any]) -> None:
    for name, value in content.items():
        if name not in SECTIONS and name not in PLAIN:
            raise InvalidRequest(name, f"is no setting and no table of settings{_hint(name, [*SECTIONS, *PLAIN])}")
        if name in SECTIONS and not isinstance(value, dict):
            raise InvalidRequest(name, f"must be a table: [{name}]")
        for key in value if name in SECTIONS else ():
            if key not in SECTIONS[name].fields:
                raise InvalidRequest(f"[{name}] {key}", f"is not a setting{_hint(key, SECTIONS[name].fields)}")


def _hint(name: str, known: list[str]) -> str:
    """Where it belongs, or what it is like."""
    for section, found in SECTIONS.items():
        if name in found.fields:
            return f"; it belongs under [{section}]"
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"


def _toml_lines(found: Mapping[str, Found]) -> Iterator[str]:
    for name, setting in found.items():
        if setting.value is None:
            yield f"# {name} is not set{'' if setting.source == 'default' else f' ({setting.source})'}"
        else:
            yield f"{f'{name} = {_toml(setting.value)}':<48}# {setting.source}"


def _toml(value: Any) -> str:
    """JSON's texts, numbers and lists are TOML's as well."""
    return json.dumps(value, ensure_ascii=False)


def _read_file(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InvalidRequest("--config", f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, *UNREADABLE) as error:
        raise InvalidRequest("--config", f"{path} is not TOML: {error}") from None
