"""What a model says about its cache: which layers share a page table and how long a page stays useful."""

from __future__ import annotations

from typing import Literal

import msgspec

KVCacheType = Literal["f32", "f16", "bf16", "int8", "fp8"]
"""How a key or a value is kept: as singles, as halves of either kind, as bytes with a scale a token and head, or as
floats of eight bits."""
SCALE_BYTES = 4


class CacheGroup(msgspec.Struct, frozen=True):
    """Layers whose keys and values live and die together; a row has one page table for each group.

    `full` keeps every token. `window` needs only the last `window` tokens, so pages behind it are given back.
    """

    kind: Literal["full", "window"]
    layers: tuple[int, ...]
    num_kv_heads: int
    head_dim: int
    window: int = 0

    def bytes_per_token(self, kv_cache_type: KVCacheType) -> int:
        bytes_per_head = {
            "f32": 4 * self.head_dim,
            "f16": 2 * self.head_dim,
            "bf16": 2 * self.head_dim,
            "int8": self.head_dim + SCALE_BYTES,
            "fp8": self.head_dim,
        }
        return 2 * len(self.layers) * self.num_kv_heads * bytes_per_head[kv_cache_type]

    def first_seen(self, num_tokens: int) -> int:
        """The first position that the token after `num_tokens` others still looks at."""
        return max(0, num_tokens - self.window + 1) if self.window else 0

    def most_pages(self, num_tokens: int, num_step_tokens: int, page_size: int) -> int:
        """The most pages that a sequence of `num_tokens` holds at once, computed in steps of at most so many tokens."""
        most = -(-num_tokens // page_size)
        if not self.window:
            return most
        # A window may begin and end inside a page.
        return min(most, -(-(self.window + num_step_tokens) // page_size) + 1)
