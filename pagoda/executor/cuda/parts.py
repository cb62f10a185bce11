"""What the executor keeps on the device, and the memory ledger's line for each of its owners."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pagoda.executor.cuda.device_rows import DeviceRows
from pagoda.executor.cuda.drawing import DeviceDraws
from pagoda.executor.cuda.inputs import StepInputs
from pagoda.executor.cuda.mailbox import Returns
from pagoda.executor.cuda.pages import DevicePages
from pagoda.executor.cuda.prompt_scores import PromptScorer
from pagoda.executor.cuda.sharing import PageSharing
from pagoda.kernels.cuda.attention import Attention
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.program import Program, RopeTensors


@dataclass(frozen=True)
class DeviceSizes:
    """What everything is made for, beside the length of a row."""

    max_num_seqs: int
    max_num_batched_tokens: int
    page_size: int

    @property
    def max_tokens(self) -> int:
        return max(self.max_num_batched_tokens, self.max_num_seqs)


@dataclass(frozen=True, eq=False)
class RowParts:
    """What grows with the length of a row."""

    attention: Attention
    ropes: list[RopeTensors]
    rows: DeviceRows
    inputs: StepInputs

    def lines(self) -> dict[str, int]:
        return {
            "attention": self.attention.num_bytes(),
            "positions": bytes_of(*(table for pair in self.ropes for table in pair)),
            "rows": self.rows.num_bytes + self.inputs.num_bytes,
        }


@dataclass(frozen=True, eq=False)
class DeviceParts:
    program: Program
    pages: DevicePages
    of_rows: RowParts
    sharing: PageSharing | None
    """None: the model has no layers that see everything, or nothing may depend on who shares what."""
    draws: DeviceDraws
    prompt_scores: PromptScorer
    returns: Returns

    def lines(self) -> dict[str, int]:
        """By line: what its owners hold on the device."""
        sharing = 0 if self.sharing is None else self.sharing.num_bytes
        others = {"draws": self.draws.num_bytes + self.prompt_scores.num_bytes, "sharing": sharing}
        return self.program.lines() | {"pages": self.pages.num_bytes()} | others | self.of_rows.lines()

    @property
    def num_host_bytes(self) -> int:
        """Pinned in main memory, for copies."""
        of_rows = (self.of_rows.rows, self.of_rows.inputs, self.sharing)
        owners = (*of_rows, self.draws, self.prompt_scores, self.returns)
        return sum(owner.num_host_bytes for owner in owners if owner is not None)


class DeviceMemory:
    """What was free on a device when this was made, and what has been taken since, by whomever."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what an engine before this one has left is free as well
        self.free_bytes = self._free_now()

    @property
    def taken_bytes(self) -> int:
        return self.free_bytes - self._free_now()

    def _free_now(self) -> int:
        if self._device.type != "cuda":  # the same with torch on a CPU, for tests
            return 1 << 33
        return torch.cuda.mem_get_info(self._device)[0]
