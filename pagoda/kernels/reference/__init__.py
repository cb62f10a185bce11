"""The NumPy twin of every operator."""

from __future__ import annotations

from pagoda.kernels.reference.table import ReferenceOperators

__all__ = ["ReferenceOperators"]
