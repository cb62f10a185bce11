"""A recorded forward pass on the device: in one form for any batch, in another for a single row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pagoda.kernels.base import FloatArray, KVPages, RopeFrequencies, StoredWeight, Weight
from pagoda.kernels.cuda.attention import Attention
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.counting import NOWHERE, bytes_of
from pagoda.kernels.cuda.fusion import fuse
from pagoda.kernels.cuda.recorder import Recorder
from pagoda.kernels.cuda.row_calls import join_for_row
from pagoda.kernels.cuda.steps import Common, Piece, Steps
from pagoda.kernels.cuda.weights import DeviceWeights
from pagoda.kernels.reference.rope import rope_table
from pagoda.kernels.symbol import Symbol

RopeTensors = tuple[torch.Tensor, torch.Tensor]


class Program:
    """Every buffer is made once, for `max_tokens` tokens and `max_logits` rows of logits, and lies still: what a graph
    has captured stays true."""

    def __init__(
        self,
        recorder: Recorder,
        logits: Symbol,
        weights: DeviceWeights,
        attention: Attention,
        ropes: list[RopeTensors],
        *,
        max_tokens: int,
        max_logits: int,
        quantization: str = "none",
        deterministic: bool = False,
    ) -> None:
        self._common = Common(
            weights=weights,
            quantization=quantization,
            layers=recorder.layers,
            ropes=ropes,
            interleaved=[rope.interleaved for rope in recorder.ropes],
            attention=attention,
            deterministic=deterministic,
        )
        self.max_tokens = max_tokens
        self.max_logits = max_logits
        plain = fuse(recorder.calls, recorder.num_values)
        in_bytes = quantization == "fp8"
        calls = fuse(recorder.calls, recorder.num_values, in_bytes) if in_bytes else plain
        self._steps = Steps(self._common, calls, logits, max_tokens, max_logits)
        for_row = None if deterministic else join_for_row(plain)  # its sums are not those of many rows
        self._row_steps = Steps(self._common, for_row, logits, 1, 1) if for_row is not None else None
        self._products = self._common.linear_workspace
        weights.finish()

    @property
    def pieces(self) -> Sequence[Piece]:
        """What computes a batch that was prepared, launched in order; ask for its logits before the next."""
        return self._steps.pieces

    def prepare(self, batch: DeviceBatch) -> None:
        """What all layers of the batch's attention go by."""
        self._common.attention.prepare(batch)

    def logits(self, batch: DeviceBatch, logit_tokens: torch.Tensor) -> torch.Tensor:
        """The logits of some tokens of the batch that ran last, at most `max_logits` at once."""
        return self._steps.logits(batch, logit_tokens)

    def hidden(self, batch: DeviceBatch) -> FloatArray:
        """The hidden states of the batch that ran last, [T, D], on the host."""
        return np.concatenate([part.float().cpu().numpy().copy() for part in self._steps.hidden(batch)])

    def stored(self, weight: Weight) -> StoredWeight:
        return self._common.weights.stored(weight)

    def decode(self, batch: DeviceBatch, logit_tokens: torch.Tensor) -> torch.Tensor:
        """The logits of a batch of one token a row, all of them."""
        steps = self._steps
        if batch.num_tokens == 1 and self._row_steps is not None:
            steps = self._row_steps
        self.prepare(batch)
        steps.run(batch)
        return steps.logits(batch, logit_tokens)

    def bind(self, layers: Sequence[KVPages]) -> None:
        """The pages to work on; they may be made after everything else has taken its memory."""
        self._common.layers = list(layers)

    def lines(self) -> dict[str, int]:
        """By line of the memory ledger: what it holds."""
        forms = [steps for steps in (self._steps, self._row_steps) if steps is not None]
        return {
            "weights": self._common.weights.num_bytes(),
            "workspace": sum(steps.num_bytes(of_logits=False) for steps in forms) + bytes_of(self._products),
            "logits": sum(steps.num_bytes(of_logits=True) for steps in forms),
        }


def rope_tables(rope: RopeFrequencies, num_positions: int, device: torch.device) -> RopeTensors:
    """Cosines and sines of every position, [positions, rotary_dim / 2], as the reference rounds them."""
    if device == NOWHERE:
        shape = (num_positions, len(rope.inverse_frequencies))
        return torch.empty(shape, device=device), torch.empty(shape, device=device)
    table: Any = rope_table(np.arange(num_positions, dtype=np.int32), rope)
    return torch.from_numpy(table.cos).to(device), torch.from_numpy(table.sin).to(device)
