"""Products with a weight on the device: cuBLAS, in the type of the weight or in fp8 with a scale a row and a column."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Matrix:
    """[outputs, inputs]; `scales` [1, outputs] where the numbers are fp8."""

    numbers: torch.Tensor
    scales: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    def multiply(self, x: torch.Tensor, out: torch.Tensor, x_scales: torch.Tensor | None = None) -> None:
        """out [T, outputs] = x [T, inputs] by the matrix. With `x_scales` [T] x is fp8 too."""
        if self.scales is not None and x_scales is not None:
            torch._scaled_mm(
                x,
                self.numbers.t(),
                scale_a=x_scales.view(-1, 1),
                scale_b=self.scales,
                out_dtype=out.dtype,
                use_fast_accum=True,
                out=out,
            )
            if self.bias is not None:
                out.add_(self.bias)
        elif self.bias is not None:
            torch.addmm(self.bias, x, self.numbers.t(), out=out)
        else:
            torch.mm(x, self.numbers.t(), out=out)
