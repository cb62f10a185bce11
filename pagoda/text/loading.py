"""From a checkpoint to its tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pagoda.text.byte_tokenizer import byte_tokenizer_parts
from pagoda.text.gguf_tokenizer import read_gguf_tokenizer
from pagoda.text.hf_tokenizer import read_folder_tokenizer
from pagoda.text.tokenizer import Tokenizer
from pagoda.text.tokenizer_parts import TokenizerParts
from pagoda.weights.checkpoint import Checkpoint

TOKENIZER_NAME = "tokenizer.json"
GGUF_EMBEDDING = "token_embd.weight"


def load_tokenizer(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """`path` is what the checkpoint was opened by: a folder has the tokenizer in files of its own."""
    is_gguf = checkpoint.kind == "gguf"
    return _for_model(read_gguf_tokenizer(checkpoint.config) if is_gguf else read_folder_tokenizer(path), checkpoint)


def load_or_make_tokenizer(checkpoint: Checkpoint, folder: Path) -> Tokenizer:
    """For a model that was made up from its configuration: one of bytes where there is none."""
    if (folder / TOKENIZER_NAME).exists():
        return load_tokenizer(checkpoint, folder)
    return _for_model(byte_tokenizer_parts(), checkpoint)


def _for_model(parts: TokenizerParts, checkpoint: Checkpoint) -> Tokenizer:
    """With every token that the model can draw."""
    return Tokenizer(replace(parts, table=parts.table.of_model(_num_model_tokens(checkpoint))))


def _num_model_tokens(checkpoint: Checkpoint) -> int:
    """0 where the checkpoint does not say."""
    if checkpoint.kind == "gguf":
        return checkpoint.tensor(GGUF_EMBEDDING).shape[0] if GGUF_EMBEDDING in checkpoint else 0
    told = checkpoint.config.get("vocab_size")
    return told if isinstance(told, int) and not isinstance(told, bool) else 0
