"""What tensors hold, and a device where they hold nothing: whatever is made there is made to be counted."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch

# Only what is made by shape is quick there: torch.arange and zeros_like load a mathematics library first, for a second.
NOWHERE = torch.device("meta")


def bytes_of(*owners: Any) -> int:
    """Of tensors, and of the tensors that are fields of records."""
    total = 0
    for owner in owners:
        if isinstance(owner, torch.Tensor):
            total += owner.numel() * owner.element_size()
        elif is_dataclass(owner):
            total += bytes_of(*(getattr(owner, field.name) for field in fields(owner)))
    return total
