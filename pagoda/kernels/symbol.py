"""What a model computes on while a device only writes down what it asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Symbol:
    """A matrix of the step that does not exist yet: a row for each token (or each row of logits), `width` columns."""

    value: int
    width: int
    is_rows: bool = False
    head_width: int = 0

    def __len__(self) -> int:
        return 1  # models only hand it back to `reshape`

    def reshape(self, _num_rows: int, *shape: int) -> Symbol:
        """[T, width] seen as [T, heads, head width], or back."""
        head_width = shape[-1] if len(shape) == 2 else 0
        return Symbol(self.value, self.width, self.is_rows, head_width)
