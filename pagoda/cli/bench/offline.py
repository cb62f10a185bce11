"""What `pagoda bench throughput` and `pagoda bench latency` have in common: a model in this process, on a device."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pagoda.cli.bench.files import check_writable
from pagoda.cli.settings import SettingOptions
from pagoda.core.config import EngineConfig

if TYPE_CHECKING:
    from pagoda.bench.device import Device
    from pagoda.engine import LLM

# Tokens are not drawn but chosen: a seed would change nothing.
ENGINE_OPTIONS = SettingOptions(EngineConfig, left_out=("model", "seed"))


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name, a .gguf file or a model folder (default: smollm2)"
    )


def add_engine_and_results(parser: argparse.ArgumentParser) -> None:
    ENGINE_OPTIONS.add_to(parser.add_argument_group("engine"))
    results = parser.add_argument_group("results")
    results.add_argument("--json", metavar="FILE", help="write all figures")
    results.add_argument("--quiet", action="store_true", help="show no progress")


@contextmanager
def loaded(args: argparse.Namespace, settings: dict[str, Any]) -> Iterator[tuple[LLM, Device, str]]:
    """The model, the device that was measured before anything was put on it, and the model's name."""
    from pagoda.bench.device import measure_device
    from pagoda.cli.bench.progress import passing
    from pagoda.cli.progress import show_progress
    from pagoda.engine.device import settled
    from pagoda.weights.registry import DEFAULT_MODEL
    from pagoda.weights.store import ensure_model

    name = args.model or DEFAULT_MODEL
    settings = settled(settings)
    config = EngineConfig(model=name, **settings)  # a bad setting is refused before anything is fetched
    check_writable("--json", args.json)
    path: Any = name
    if config.load_format != "dummy":
        with show_progress(quiet=args.quiet) as progress:
            path = ensure_model(name, progress)
    with passing("measuring what the device can do", not args.quiet):
        device = measure_device(config)
    with passing(f"loading {name}", not args.quiet):
        from pagoda.engine import LLM

        llm = LLM(path, **settings)
    with llm:
        yield llm, device, name
