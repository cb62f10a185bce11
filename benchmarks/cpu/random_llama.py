"""A GGUF model of Llama-3.2-1B's shape with random weights, for speed alone: 16 layers, hidden 2048, 32 heads over 8.

.venv/bin/python -m benchmarks.cpu.random_llama Q4_K folder
Q8_0 is written as it is; other formats are made from it by llama.cpp's own tool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Shape:
    num_layers: int = 16
    hidden: int = 2048
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 64
    feed_forward: int = 8192
    vocab_size: int = 128_256
    context: int = 8192
    rope_base: float = 500_000.0
    epsilon: float = 1e-5


LLAMA_1B = Shape()
BYTES_TO_UNICODE = [*range(33, 127), *range(161, 173), *range(174, 256)]


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary."""
    letters = {byte: chr(byte) for byte in BYTES_TO_UNICODE}
    unprintable = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(256 + index) for index, byte in enumerate(unprintable)})
    return [letters[byte] for byte in range(256)]


def vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Every byte, then pairs and triples of them as merges until the vocabulary is full but for one end token."""
    letters = byte_letters()
    tokens = list(letters)
    merges = []
    parts = [*letters]
    for part in parts:
        for letter in letters:
            if len(tokens) == size - 1:
                return [*tokens, "<|end|>"], merges
            merges.append(f"{part} {letter}")
            tokens.append(part + letter)
            parts.append(part + letter)
    raise AssertionError("unreachable: the parts grow as they are read")


def matrices(shape: Shape) -> Iterator[tuple[str, tuple[int, int]]]:
    yield "token_embd", (shape.vocab_size, shape.hidden)
    for layer in range(shape.num_layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_q", (shape.num_heads * shape.head_dim, shape.hidden)
        yield f"{block}.attn_k", (shape.num_kv_heads * shape.head_dim, shape.hidden)
        yield f"{block}.attn_v", (shape.num_kv_heads * shape.head_dim, shape.hidden)
        yield f"{block}.attn_output", (shape.hidden, shape.num_heads * shape.head_dim)
        yield f"{block}.ffn_gate", (shape.feed_forward, shape.hidden)
        yield f"{block}.ffn_up", (shape.feed_forward, shape.hidden)
        yield f"{block}.ffn_down", (shape.hidden, shape.feed_forward)


def random_q8_0(shape: tuple[int, int], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Blocks of 32 quants with one scale, such that outputs keep the size of inputs."""
    rows, columns = shape
    num_blocks = columns // 32
    blocks = np.empty((rows, num_blocks, 34), np.uint8)
    scale = np.float16(1.0 / (columns**0.5 * 73.0))  # the quants below have a standard deviation of about 73
    blocks[..., :2] = np.frombuffer(scale.tobytes(), np.uint8)
    blocks[..., 2:] = rng.integers(-127, 128, (rows, num_blocks, 32), np.int8).view(np.uint8)
    return blocks.reshape(rows, num_blocks * 34)


def write_q8_0(path: Path, shape: Shape = LLAMA_1B) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random llama")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.num_layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    tokens, merges = vocabulary(shape.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (len(tokens) - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(False)
    rng = np.random.default_rng(1)
    for name, size in matrices(shape):
        data = random_q8_0(size, rng)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for name in ["output_norm", *(f"blk.{i}.{n}_norm" for i in range(shape.num_layers) for n in ("attn", "ffn"))]:
        writer.add_tensor(f"{name}.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name: str, folder: Path) -> Path:
    """The model in a format, made on first demand."""
    from benchmarks.cpu.peers import requantized

    base = folder / "llama-1b-random.gguf"
    if not base.exists():
        unfinished = base.with_suffix(".part")
        write_q8_0(unfinished)
        unfinished.rename(base)
    return base if name == "Q8_0" else requantized(base, name)


def main() -> None:
    print(make(sys.argv[1], Path(sys.argv[2])))


if __name__ == "__main__":
    main()
