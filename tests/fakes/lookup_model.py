"""A whole model in a GGUF file of some hundred kilobytes that always says the same: each letter leads to the next.

Its layers add nothing, so what it says next depends on its last token alone: the end of a chat's prompt leads to the
first letter of SAYING, the last letter to the end token, and the end token, if it is ignored, to the first letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

SAYING = "Hi, word!"
END = "<|im_end|>"
START = "<|im_start|>"
TEMPLATE = (
    "{% for m in messages %}" + START + "{{ m.role }}\n{{ m.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}" + START + "{% endif %}"
)
WIDTH = 320


def byte_pieces() -> list[str]:
    """The letters that byte-level vocabularies write for the 256 bytes, in the order of the bytes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


def write_lookup_model(
    path: Path,
    has_template: bool = True,
    context: int = 4096,
    ends: bool = True,
    recommends: Mapping[str, float] | None = None,
) -> Path:
    """Without `ends` its last letter leads to the first again. `recommends`: keys of `general.sampling`."""
    assert len(set(SAYING)) == len(SAYING), "a letter that comes twice would have two successors"
    pieces = [*byte_pieces(), START, END, "QQ"]  # such a vocabulary needs one merge at least
    start, end = pieces.index(START), pieces.index(END)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL])
    writer.add_token_merges(["Q Q"])
    writer.add_bos_token_id(start)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    for name, value in (recommends or {}).items():
        add = writer.add_int32 if isinstance(value, int) else writer.add_float32
        add(f"general.sampling.{name}", value)
    if has_template:
        writer.add_chat_template(TEMPLATE)
    _add_weights(writer, len(pieces), [start, *SAYING.encode(), end if ends else ord(SAYING[0])])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_weights(writer: gguf.GGUFWriter, vocab_size: int, chain: list[int]) -> None:
    embedding = np.eye(vocab_size, WIDTH, dtype=np.float32)
    head = np.zeros((vocab_size, WIDTH), np.float32)
    for token, following in zip(chain, chain[1:], strict=False):
        head[following, token] = 5.0
    untold = np.setdiff1d(np.arange(vocab_size), chain[:-1])
    head[chain[1], untold] = 5.0  # any other token, an ignored end too, leads to the first letter
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", head)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    shapes = {
        "attn_q": (32, WIDTH),
        "attn_k": (16, WIDTH),
        "attn_v": (16, WIDTH),
        "attn_output": (WIDTH, 32),
        "ffn_gate": (32, WIDTH),
        "ffn_up": (32, WIDTH),
        "ffn_down": (WIDTH, 32),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(WIDTH, np.float32))
