"""What a weight format is: the size of a block and the function that turns blocks into float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Blocks are decoded in pieces of this many elements, so that the temporaries stay in the processor's cache.
CHUNK_ELEMENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A format stores `block_size` elements in `block_bytes` bytes; a row is a whole number of blocks."""

    name: str
    block_size: int
    block_bytes: int
    # (num_blocks, block_bytes) uint8 -> (num_blocks, block_size) float32
    decode: Callable[[np.ndarray], np.ndarray]

    def num_bytes(self, num_elements: int) -> int:
        return num_elements // self.block_size * self.block_bytes

    def dequantize(self, raw: np.ndarray) -> np.ndarray:
        """Decode uint8 rows of whole blocks (the last axis) into a fresh float32 array with the same leading axes."""
        if raw.dtype != np.uint8 or raw.ndim == 0 or raw.shape[-1] % self.block_bytes:
            raise ValueError(f"{self.name}: expected uint8 rows of whole {self.block_bytes}-byte blocks")
        row_blocks = raw.shape[-1] // self.block_bytes
        shape = (*raw.shape[:-1], row_blocks * self.block_size)
        num_blocks = raw.size // self.block_bytes
        blocks = np.ascontiguousarray(raw).reshape(num_blocks, self.block_bytes)
        decoded = np.empty((num_blocks, self.block_size), dtype=np.float32)
        step = max(1, CHUNK_ELEMENTS // self.block_size)
        # A damaged scale may be infinite or not a number; the value says so, a warning would add nothing.
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, num_blocks, step):
                decoded[start : start + step] = self.decode(blocks[start : start + step])
        return decoded.reshape(shape)


def packed(*fields: tuple[str, str] | tuple[str, str, int]) -> np.dtype:
    """The dtype of one block: little-endian fields one after another, without padding."""
    return np.dtype([(name, kind, tuple(length)) if length else (name, kind) for name, kind, *length in fields])


def block_format(
    name: str, block_size: int, layout: np.dtype, decode: Callable[[np.ndarray], np.ndarray]
) -> WeightFormat:
    """A format whose decoder sees one record of `layout` per block."""

    def decode_bytes(blocks: np.ndarray) -> np.ndarray:
        return decode(blocks.view(layout)[:, 0]).reshape(len(blocks), block_size)

    return WeightFormat(name, block_size, layout.itemsize, decode_bytes)


def bit_fields(packed_bytes: np.ndarray, num_bits: int) -> np.ndarray:
    """Split bytes (..., k) into fields (..., 8 / num_bits, k), lowest first: byte j holds numbers j, k + j, ..."""
    shifts = np.arange(0, 8, num_bits, dtype=np.uint8)[:, None]
    return (packed_bytes[..., None, :] >> shifts) & np.uint8((1 << num_bits) - 1)


def column(values: np.ndarray) -> np.ndarray:
    """One float32 scale per block, shaped to broadcast over the block's elements."""
    return values.astype(np.float32)[:, None]
