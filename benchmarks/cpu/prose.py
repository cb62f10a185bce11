"""Plain English text that is on any Python or Debian machine: the language reference and free licences."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

# Prose, not tables or grammars.
TOPICS = (
    *("formatstrings", "typesseq", "execmodel", "objects", "exceptions", "assignment", "class", "function", "import"),
    *("with", "try", "specialnames", "customization", "attribute-access", "calls", "comparisons", "debugger", "del"),
    *("dynamic-features", "for", "global", "if", "imaginary", "integers", "lambda", "lists", "naming", "nonlocal"),
)
LICENCES = ("GPL-3", "GFDL-1.3", "LGPL-2.1", "Artistic", "MPL-2.0")


def licences() -> str:
    folder = Path("/usr/share/common-licenses")
    texts = [path.read_text(errors="replace") for name in LICENCES if (path := folder / name).is_file()]
    return "\n\n".join(texts) or (Path(__file__).parents[2] / "LICENSE").read_text()


def language_reference() -> str:
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    return "\n\n".join(topics[name] for name in TOPICS if name in topics)


def windows(encode: Callable[[str], list[int]], num_windows: int, length: int) -> list[list[int]]:
    """Consecutive windows of tokens, half of them from the reference and half from licences."""
    counts = (num_windows - num_windows // 2, num_windows // 2)
    found: list[list[int]] = []
    for text, count in zip((language_reference(), licences()), counts, strict=True):
        token_ids = encode(text)
        available = len(token_ids) // length
        if available < count:
            raise SystemExit(f"only {available} of {count} windows of {length} tokens in the text at hand")
        found += [token_ids[i * length : (i + 1) * length] for i in range(count)]
    return found
