"""Products with a weight on the device: our own kernel for a few rows, cuBLAS for more, with tiles of our own choosing
where that is quicker; plain or in fp8 with scales."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from pagoda.kernels.cuda.cublaslt import tiled_product
from pagoda.kernels.cuda.row_linear import row_linear
from pagoda.kernels.cuda.small_linear import (
    MOST_ROWS,
    LinearWorkspace,
    linear_plan,
    linear_workspace,
    small_linear,
)

# Up to so many rows our own kernel is quicker, by the bytes of a stored number.
FEW_ROWS = {1: MOST_ROWS, 2: 0, 4: 0}


@dataclass(frozen=True, eq=False)
class Matrix:
    """[outputs, inputs]; `scales` [1, outputs] where the numbers are fp8."""

    numbers: torch.Tensor
    scales: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    @property
    def num_wide(self) -> int:
        """Numbers that have to be widened before they are multiplied."""
        return 0

    @property
    def num_row(self) -> int:
        """Words that a row of inputs takes before it is multiplied."""
        return 0

    def is_small(self, num_rows: int) -> bool:
        return self.numbers.is_cuda and num_rows <= FEW_ROWS[self.numbers.element_size()]

    def multiply(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        workspace: LinearWorkspace,
        x_scales: torch.Tensor | None = None,
    ) -> None:
        """out [T, outputs] = x [T, inputs] by the matrix. With `x_scales` [T] x is fp8 too."""
        tiled = tiled_product(out, x, self.numbers, self.bias is not None)
        if tiled is not None:
            tiled(out, x, self.numbers, workspace.partial, x_scales, self.scales, self.bias)
        elif self.is_small(len(x)):
            scales = None if self.scales is None else self.scales.view(-1)
            small_linear(out, x, self.numbers, workspace, x_scales, scales, self.bias)
        else:
            self.multiply_by_torch(x, out, x_scales)

    def multiply_by_torch(self, x: torch.Tensor, out: torch.Tensor, x_scales: torch.Tensor | None = None) -> None:
        """The same by whatever kernel the library takes of itself."""
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

    def multiply_row(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        _workspace: LinearWorkspace,
        residual: torch.Tensor | None = None,
        norm: torch.Tensor | None = None,
        epsilon: float = 0.0,
        offset: float = 0.0,
        gated: bool = False,
    ) -> None:
        """A single row, with what stands before and behind the product: see row_linear.py."""
        scales = None if self.scales is None else self.scales.view(-1)
        row_linear(out, x, self.numbers, scales, self.bias, residual, norm, epsilon, offset, gated)


def workspace_for(matrices: Iterable[Matrix], device: torch.device, dtype: torch.dtype) -> LinearWorkspace:
    """Room for the partial results of any of the matrices, and for the largest that is widened."""
    most_out, most_stretches, most_wide, most_row = 1, 1, 0, 0
    for matrix in matrices:
        most_wide, most_row = max(most_wide, matrix.num_wide), max(most_row, matrix.num_row)
        if matrix.num_wide:
            continue
        numbers = matrix.numbers
        most_out = max(most_out, len(numbers))
        for num_rows in (1, MOST_ROWS):
            plan = linear_plan(num_rows, len(numbers), numbers.shape[1], numbers.element_size())
            most_stretches = max(most_stretches, plan.num_stretches)
    workspace = linear_workspace(most_out, most_stretches, device)
    if not most_wide:
        return workspace
    wide = torch.empty(most_wide, dtype=dtype, device=device)
    return replace(workspace, wide=wide, row=torch.empty(most_row, dtype=torch.int32, device=device))
