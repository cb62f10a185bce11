"""The `sample` operator in NumPy: one file a step, in the order of chain.py."""

from __future__ import annotations

from pagoda.kernels.reference.sampling.chain import sample
from pagoda.kernels.reference.sampling.logprobs import token_logprobs

__all__ = ["sample", "token_logprobs"]
