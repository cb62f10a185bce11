"""From a checkpoint to its tokenizer."""

from __future__ import annotations

from pathlib import Path

from pagoda.text.byte_tokenizer import byte_tokenizer_parts
from pagoda.text.tokenizer import Tokenizer
from pagoda.weights.checkpoint import Checkpoint

TOKENIZER_NAME = "tokenizer.json"


def load_tokenizer(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """`path` is what the checkpoint was opened by: a folder has the tokenizer in files of its own."""
    if checkpoint.kind == "gguf":
        return Tokenizer.from_gguf(checkpoint.config)
    return Tokenizer.from_folder(path)


def load_or_make_tokenizer(checkpoint: Checkpoint, folder: Path) -> Tokenizer:
    """For a model that was made up from its configuration: one of bytes where there is none."""
    if (folder / TOKENIZER_NAME).exists():
        return load_tokenizer(checkpoint, folder)
    return Tokenizer(byte_tokenizer_parts())
