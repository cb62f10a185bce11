"""`pagoda list`: the models in the store, or those that are known by name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagoda.weights.manifest import Manifest

EXAMPLES = """\
  pagoda list
  pagoda list --known
  pagoda list --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--known", action="store_true", help="list the names that can be pulled instead")
    parser.add_argument("--json", action="store_true", help="print the manifests as JSON")


def main(args: argparse.Namespace) -> int:
    import msgspec

    from pagoda.weights.registry import DEFAULT_MODEL

    if args.known:
        print(_known_table())
        return 0
    manifests = _stored_manifests()
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(manifests), indent=2).decode())
    elif manifests:
        print(_stored_table(manifests))
    else:
        print(f"the store is empty; try: pagoda pull {DEFAULT_MODEL}", file=sys.stderr)
    return 0


def _stored_manifests() -> list[Manifest]:
    from pagoda.core.errors import ModelFileError
    from pagoda.weights.store import ModelStore

    store = ModelStore()
    manifests = []
    for name in store.names():
        try:
            manifest = store.get(name)
        except ModelFileError as error:
            print(f"pagoda: warning: {error}", file=sys.stderr)
            continue
        if manifest is not None:
            manifests.append(manifest)
    return manifests


def _stored_table(manifests: Sequence[Manifest]) -> str:
    from pagoda.cli.formatting import format_bytes, format_count, format_table

    rows = [("NAME", "SIZE", "PARAMETERS", "QUANTIZATION", "PULLED", "SOURCE")]
    for manifest in manifests:
        parameters = format_count(manifest.num_parameters) if manifest.num_parameters else "-"
        pulled_at = manifest.pulled_at[:16].replace("T", " ")
        size = format_bytes(manifest.num_bytes)
        source = _shorten(manifest.source)
        rows.append((manifest.name, size, parameters, manifest.quantization or "-", pulled_at, source))
    return format_table(rows)


def _known_table() -> str:
    from pagoda.cli.formatting import format_bytes, format_count, format_table
    from pagoda.weights.registry import DEFAULT_MODEL, KNOWN_MODELS

    rows = [("NAME", "SIZE", "PARAMETERS", "QUANTIZATION", "LICENCE", "WHAT IT IS")]
    for model in KNOWN_MODELS.values():
        summary = model.summary + (" (default)" if model.name == DEFAULT_MODEL else "")
        parameters, size = format_count(model.num_parameters), format_bytes(model.num_bytes)
        rows.append((model.name, size, parameters, model.quantization, model.source.licence, summary))
    return format_table(rows)


def _shorten(source: str) -> str:
    first, _, rest = source.partition(",")
    return f"{first} and {rest.count(',') + 1} more" if rest else first
