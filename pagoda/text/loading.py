"""From a checkpoint to its tokenizer."""

from __future__ import annotations

from pathlib import Path

from pagoda.text.tokenizer import Tokenizer
from pagoda.weights.checkpoint import Checkpoint


def load_tokenizer(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """`path` is what the checkpoint was opened by: a folder has the tokenizer in files of its own."""
    if checkpoint.kind == "gguf":
        return Tokenizer.from_gguf(checkpoint.config)
    return Tokenizer.from_folder(path)
