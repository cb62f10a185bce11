"""`pagoda serve`: a model behind OpenAI's API."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from pagoda.cli.settings import SettingOptions
from pagoda.core.config import EngineConfig
from pagoda.core.environment import api_key, serve_variables
from pagoda.core.errors import InvalidRequest
from pagoda.server.config import ListenConfig, LogConfig, ProcessSettings, QueueConfig, ServerConfig
from pagoda.server.limits import Limits

EXAMPLES = """\
  pagoda serve
  pagoda serve smollm2 --port 9000
  PAGODA_API_KEY=a-long-secret pagoda serve smollm2 --host 0.0.0.0
  pagoda serve --config server.toml
  curl localhost:8000/v1/chat/completions -H "Content-Type: application/json" \\
       -d '{"messages": [{"role": "user", "content": "Name a river."}]}'
"""

SECTIONS: dict[str, SettingOptions] = {
    "listen": SettingOptions(ListenConfig),
    "queue": SettingOptions(QueueConfig),
    "limits": SettingOptions(Limits),
    "log": SettingOptions(LogConfig),
    "engine": SettingOptions(EngineConfig, left_out=("model",)),
}
TITLES = {
    "listen": "where to listen",
    "queue": "waiting",
    "limits": "what one request may ask for",
    "log": "log and traces",
    "engine": "engine",
}
RECORDS: dict[str, type[msgspec.Struct]] = {
    "listen": ListenConfig,
    "queue": QueueConfig,
    "limits": Limits,
    "log": LogConfig,
    "engine": EngineConfig,
}
PLAIN = ("served_model_name", "api_keys_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda serve [MODEL] [options]"
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name, a .gguf file or a model folder (default: smollm2)"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, a table for each group below")
    parser.add_argument("--served-model-name", metavar="TEXT", help="what clients call the model (default: its name)")
    parser.add_argument("--api-keys-file", metavar="FILE", help="TOML file of API keys and their limits")
    for name, options in SECTIONS.items():
        options.add_to(parser.add_argument_group(f"{TITLES[name]} ([{name}])"))


def main(args: argparse.Namespace) -> int:
    settings = read_settings(args)
    from pagoda.cli.progress import show_progress
    from pagoda.server.supervisor import Supervisor
    from pagoda.weights.store import ensure_model

    with show_progress() as progress:
        path = ensure_model(settings.engine.model, progress)
    print(f"pagoda: serving {settings.engine.model}", file=sys.stderr)
    return Supervisor(msgspec.structs.replace(settings, model_path=str(path))).run()


def read_settings(args: argparse.Namespace) -> ProcessSettings:
    """The file first, then the environment, then the command line: the last one said counts."""
    from pagoda.weights.registry import DEFAULT_MODEL

    content = _read_file(args.config) if args.config else {}
    found: dict[str, dict[str, Any]] = {}
    for name, options in SECTIONS.items():
        fields = dict(content.pop(name, {}))
        fields |= serve_variables(_fields(name))
        found[name] = fields | options.given(args)
    plain = {name: content.pop(name) for name in PLAIN if name in content}
    plain |= {name: getattr(args, name) for name in PLAIN if getattr(args, name) is not None}
    model = args.model or content.pop("model", DEFAULT_MODEL)
    content.pop("model", None)
    if content:
        raise InvalidRequest("--config", f"{sorted(content)[0]!r} is not a setting")
    parts: dict[str, Any] = {name: _make(name, fields) for name, fields in found.items() if name != "engine"}
    engine = _make("engine", {"model": model} | found["engine"])
    return ProcessSettings(
        server=ServerConfig(**parts, **plain),
        engine=engine,  # type: ignore[arg-type]
        model_path="",
        api_key=api_key(),
    )


def _fields(section: str) -> list[str]:
    return [field.name for field in msgspec.structs.fields(RECORDS[section]) if field.name != "model"]


def _make(section: str, fields: dict[str, Any]) -> msgspec.Struct:
    known = {field.name for field in msgspec.structs.fields(RECORDS[section])}
    for name in fields:
        if name not in known:
            raise InvalidRequest(f"[{section}] {name}", "is not a setting")
    try:
        # Not strict: what comes from the environment is text.
        return msgspec.convert(fields, RECORDS[section], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"[{section}]", str(error)) from None


def _read_file(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InvalidRequest("--config", f"{path} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest("--config", f"{path} is not TOML: {error}") from None
