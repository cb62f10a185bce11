"""JSON from a model's folder, read as hostile input: bounded in size, depth and memory, no key twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pagoda.core.errors import ModelFileError
from pagoda.weights.mapped_file import MappedFile

MAX_FILE_BYTES = 64 << 20
# What parsing may allocate beyond the size of the model it describes.
MEMORY_ALLOWANCE = 48 << 20

# Upper bounds of what CPython allocates for one object, one list, and one item of either with its key.
_OBJECT_BYTES, _LIST_BYTES, _ITEM_BYTES = 240, 100, 240


def read_json_object(path: Path, model_bytes: int = 0) -> dict[str, Any]:
    with MappedFile.open(path) as mapped:
        if mapped.size > MAX_FILE_BYTES:
            raise ModelFileError(f"{path.name}: {mapped.size} bytes, the limit for a JSON file is {MAX_FILE_BYTES}")
        return parse_json_object(mapped.buffer[:], path.name, model_bytes + mapped.size)


def parse_json_object(text: bytes, label: str, model_bytes: int) -> dict[str, Any]:
    """Parse one object, or refuse it with a `ModelFileError` whose line begins with `label`."""
    if _memory_bound(text) > model_bytes + MEMORY_ALLOWANCE:
        raise ModelFileError(f"{label}: the JSON would take far more memory than the model it describes")
    try:
        parsed = json.loads(str(text, "utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise ModelFileError(f"{label}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"{label}: not valid JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise ModelFileError(f"{label}: expected a JSON object")
    return parsed


def _memory_bound(text: bytes) -> int:
    # Every value but the first follows one of these characters; inside strings they only raise the bound.
    structure = text.count(b"{") * _OBJECT_BYTES + text.count(b"[") * _LIST_BYTES + text.count(b",") * _ITEM_BYTES
    characters = len(text) * (1 if text.isascii() else 4)
    return structure + 2 * characters


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # `dict` alone would let the last of two entries win, where another reader might take the first.
    result = dict(pairs)
    if len(result) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:80]!r} stands twice")
    return result
