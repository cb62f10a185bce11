"""Settings, one frozen record per concept. Each is checked where it is made and never changed afterwards."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagoda.core.errors import InvalidRequest


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    policy: Literal["fcfs", "priority"] = "fcfs"
    """Who goes first: `fcfs` by arrival, `priority` by the request's priority and then by arrival."""
    max_num_seqs: int = 64
    """Sequences that run at once; each has a row of its own."""
    max_num_batched_tokens: int = 512
    """Tokens computed in one step, over all rows. Longer prompts are cut into chunks."""
    max_preemptions: int = 3
    """A request pushed back this often next starts only with every page it can ever need."""
    num_draft_tokens: int = 0
    """Guesses verified with each decoded token; the executor says how many it can make."""

    def __post_init__(self) -> None:
        if self.policy not in ("fcfs", "priority"):
            raise InvalidRequest("policy", f"{self.policy!r} is not one of 'fcfs', 'priority'")
        for field in ("max_num_seqs", "max_num_batched_tokens", "max_preemptions"):
            if getattr(self, field) < 1:
                raise InvalidRequest(field, f"must be at least 1, not {getattr(self, field)}")
        if self.num_draft_tokens < 0:
            raise InvalidRequest("num_draft_tokens", f"must not be negative, not {self.num_draft_tokens}")
        least = self.max_num_seqs * (1 + self.num_draft_tokens)
        if self.max_num_batched_tokens < least:
            raise InvalidRequest(
                "max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is less than one step of {self.max_num_seqs} rows needs; "
                f"give at least {least} or lower max_num_seqs",
            )


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    block_size: int = 16
    """Tokens in a page."""
    num_pages: tuple[int, ...]
    """Pages of each cache group."""
    enable_prefix_caching: bool = True
    """Keep computed pages for later requests that begin with the same tokens."""

    def __post_init__(self) -> None:
        if not 1 <= self.block_size <= 1024:
            raise InvalidRequest("block_size", f"must lie between 1 and 1024, not {self.block_size}")
        if not self.num_pages or min(self.num_pages) < 1:
            raise InvalidRequest("num_pages", f"every cache group needs at least one page, not {self.num_pages}")
