"""The `decoder` of a `tokenizer.json`, read as what it does to the bytes of one token, so that text can be streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagoda.core.errors import ModelFileError
from pagoda.text.byte_level import byte_level_bytes
from pagoda.text.token_table import byte_fallback_bytes, sentencepiece_bytes

PieceBytes = Callable[[str], bytes]


def read_decoder(decoder: dict[str, Any] | None) -> tuple[PieceBytes, bool]:
    """How a piece becomes bytes, and whether a text loses its leading space."""
    steps = _flatten(decoder)
    kinds = {step.get("type") for step in steps}
    if kinds == {"ByteLevel"}:
        return byte_level_bytes, False
    if kinds == {"WordPiece"}:
        prefix = steps[0].get("prefix")
        return _word_piece_bytes(prefix if isinstance(prefix, str) else "##"), True
    if kinds and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        piece_bytes = byte_fallback_bytes if "ByteFallback" in kinds else sentencepiece_bytes
        return piece_bytes, any(_strips_leading_space(step) for step in steps)
    found = ", ".join(sorted(map(str, kinds))) or "none"
    raise ModelFileError(f"tokenizer.json: the decoder ({found[:80]}) is of no supported kind")


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") != "Sequence":
        return [decoder]
    steps = decoder.get("decoders")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ModelFileError("tokenizer.json: decoder.decoders is not a list of decoders")
    return steps


def _strips_leading_space(step: dict[str, Any]) -> bool:
    if step.get("type") == "Strip":
        return step.get("content") == " " and bool(step.get("start"))
    if step.get("type") == "Metaspace":
        return step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space") is not False
    return False


def _word_piece_bytes(prefix: str) -> PieceBytes:
    def piece_bytes(piece: str) -> bytes:
        text = piece.removeprefix(prefix) if piece.startswith(prefix) else " " + piece
        return text.encode("utf-8", "replace")

    return piece_bytes
