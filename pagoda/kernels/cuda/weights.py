"""Weights on the device, in the type they are multiplied in; products that run as one share one matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagoda.kernels.base import RANDOM_DEVIATION, RANDOM_FORMAT, Arithmetic, StoredWeight, Weight
from pagoda.kernels.cuda.counting import NOWHERE, bytes_of
from pagoda.kernels.cuda.narrow_linear import narrow, narrow_bytes
from pagoda.kernels.cuda.upload import Uploader

LARGEST_FP8 = 448.0
SCALE_BYTES = 4  # one for each output of a product in fp8


@dataclass(frozen=True, eq=False)
class ScaledMatrix:
    """Weights in numbers of less than sixteen bits. `bits` of whole numbers; 0: fp8."""

    weights: Sequence[Weight]
    bits: int
    numbers: torch.Tensor
    scales: torch.Tensor

    def bytes_of(self, weight: Weight) -> int:
        num_out, num_in = weight.shape
        return narrow_bytes(num_out, num_in, self.bits) if self.bits else num_out * (num_in + SCALE_BYTES)


class DeviceWeights:
    """Keyed by identity: whoever asks for the same weights again gets the same matrix."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._uploader = Uploader(device)
        # The weights are kept beside their copies, or their ids could be given to other objects.
        self._matrices: dict[tuple[int, ...], tuple[Sequence[Weight], torch.Tensor]] = {}
        self._scaled: dict[tuple[int, ...], ScaledMatrix] = {}
        self._biases: list[torch.Tensor] = []

    def vector(self, weight: Weight) -> torch.Tensor:
        """A norm's weight, in single precision."""
        return self._get((weight,), torch.float32)

    def bias(self, weights: Sequence[Weight | None], widths: Sequence[int]) -> torch.Tensor | None:
        """The biases of joined products in one vector; None where there is none at all."""
        if all(weight is None for weight in weights):
            return None
        joined = torch.empty(sum(widths), device=self.device, dtype=self.dtype)
        for weight, part in zip(weights, joined.split(list(widths)), strict=True):
            part.zero_() if weight is None else self._fill(part, weight)
        self._biases.append(joined)
        return joined

    def matrix(self, weights: Sequence[Weight]) -> torch.Tensor:
        """[sum of outputs, inputs]"""
        return self._get(tuple(weights), self.dtype)

    def fp8_matrix(self, weights: Sequence[Weight]) -> tuple[torch.Tensor, torch.Tensor]:
        """e4m3 [sum of outputs, inputs] and a scale for each output, [1, outputs]."""
        return self._get_scaled(weights, 0)

    def narrow_matrix(self, weights: Sequence[Weight], bits: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Words of so many bits a number, and the scales of their groups."""
        return self._get_scaled(weights, bits)

    def num_bytes(self) -> int:
        kept = [tensor for _, tensor in self._matrices.values()]
        kept += [tensor for own in self._scaled.values() for tensor in (own.numbers, own.scales)]
        return bytes_of(*kept, *self._biases)

    def finish(self) -> None:
        """Every copy has arrived, and what they passed through is given back."""
        self._uploader.close()

    def stored(self, weight: Weight) -> StoredWeight:
        """Of a matrix that several weights share, the part of its rows."""
        for scaled in self._scaled.values():
            if any(weight is own for own in scaled.weights):
                return StoredWeight(scaled.bytes_of(weight), self._arithmetic if scaled.bits else "fp8")
        is_vector = len(weight.shape) == 1 and (id(weight), hash(torch.float32)) in self._matrices
        dtype = torch.float32 if is_vector else self.dtype
        return StoredWeight(math.prod(weight.shape) * dtype.itemsize, self._arithmetic)

    @property
    def _arithmetic(self) -> Arithmetic:
        return "bf16" if self.dtype == torch.bfloat16 else "f32"

    def _get(self, weights: tuple[Weight, ...], dtype: torch.dtype) -> torch.Tensor:
        key = (*map(id, weights), hash(dtype))
        if key not in self._matrices:
            self._matrices[key] = (weights, self._upload(weights, dtype))
        return self._matrices[key][1]

    def _get_scaled(self, weights: Sequence[Weight], bits: int) -> tuple[torch.Tensor, torch.Tensor]:
        key = (*map(id, weights), bits)
        if key not in self._scaled:
            dense = self._upload(weights, self.dtype)
            self._uploader.wait()
            self._scaled[key] = ScaledMatrix(weights, bits, *(narrow(dense, bits) if bits else self._round(dense)))
        return self._scaled[key].numbers, self._scaled[key].scales

    def _upload(self, weights: Sequence[Weight], dtype: torch.dtype) -> torch.Tensor:
        rows = sum(weight.shape[0] for weight in weights)
        whole = torch.empty((rows, *weights[0].shape[1:]), device=self.device, dtype=dtype)
        first = 0
        for weight in weights:
            part = whole[first : first + weight.shape[0]]
            first += weight.shape[0]
            self._fill(part, weight)
        return whole

    def _fill(self, target: torch.Tensor, weight: Weight) -> None:
        if self.device == NOWHERE:
            return
        if weight.format == RANDOM_FORMAT:
            target.normal_(0.0, RANDOM_DEVIATION) if target.ndim > 1 else target.fill_(1.0)
        else:
            self._uploader.put(weight, target)

    def _round(self, dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.empty(dense.shape, device=self.device, dtype=torch.float8_e4m3fn)
        if self.device == NOWHERE:
            return numbers, torch.empty((1, len(dense)), device=self.device)
        scales = (dense.abs().amax(dim=1, keepdim=True).float() / LARGEST_FP8).clamp_(min=1e-12)
        for first in range(0, len(dense), 4096):
            part = slice(first, first + 4096)
            numbers[part] = (dense[part].float() / scales[part]).to(torch.float8_e4m3fn)
        return numbers, scales.view(1, -1)
