"""Pagoda: one LLM inference engine from a two-core laptop to a data-centre GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagoda.core.sampling_params import SamplingParams
    from pagoda.engine import LLM, AsyncLLM, RequestOutput

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncLLM", "RequestOutput", "SamplingParams"]


def __getattr__(name: str) -> Any:
    """The front doors are imported when they are first asked for, so that `pagoda --help` need not wait for them."""
    if name == "SamplingParams":
        from pagoda.core.sampling_params import SamplingParams

        return SamplingParams
    if name in __all__:
        import pagoda.engine

        return getattr(pagoda.engine, name)
    raise AttributeError(f"module 'pagoda' has no attribute {name!r}")
