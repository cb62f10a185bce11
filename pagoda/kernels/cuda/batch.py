"""The tokens of one step, on the device."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import torch

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.quick_launch import Launch
from pagoda.kernels.cuda.shared_attention import SharedRows


@dataclass(frozen=True, eq=False)
class Contexts:
    """What some entries see: views that every layer's attention takes."""

    lens: torch.Tensor
    page_tables: tuple[torch.Tensor, ...]


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """As `RaggedBatch`, in views of memory that stays where it is from step to step.

    The first `num_decoding` entries have one token each. An entry whose context is empty is padding.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    entries: torch.Tensor
    """The entry that each token belongs to."""
    row_starts: torch.Tensor
    prompt_starts: torch.Tensor
    """row_starts of the entries that do not decode, counted from the first token of theirs."""
    context_lens: torch.Tensor
    page_tables: tuple[torch.Tensor, ...]
    num_decoding: int
    max_new: int
    """Most tokens of one entry."""
    shared: SharedRows | None = None
    """Decoding entries that begin with the same pages of the first cache group."""
    launches: dict[Hashable, tuple[KVPages, list[Launch]]] = field(default_factory=dict, init=False)
    """By layers that are alike: what attention launched for one of them, and on which pages."""

    @property
    def decodes_alone(self) -> bool:
        """Whether every entry has one token, and none reads pages together with others."""
        return self.num_decoding == self.num_entries and self.shared is None

    @property
    def num_tokens(self) -> int:
        return self.token_ids.shape[0]

    @property
    def num_entries(self) -> int:
        return self.context_lens.shape[0]

    @cached_property
    def decoding(self) -> Contexts:
        """Of the entries that decode."""
        count = self.num_decoding
        return Contexts(self.context_lens[:count], tuple(table[:count] for table in self.page_tables))

    @cached_property
    def prompts(self) -> Contexts:
        """Of the others."""
        count = self.num_decoding
        return Contexts(self.context_lens[count:], tuple(table[count:] for table in self.page_tables))
