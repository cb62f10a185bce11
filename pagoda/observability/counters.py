"""What the engine counts while it works, as plain numbers; whoever exports them reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EngineCounters:
    """Since the engine started."""

    num_requests: int = 0
    num_steps: int = 0
    num_computed_tokens: int = 0
    """Tokens that went through the model, prompts and drawn ones alike."""
    num_drawn_tokens: int = 0
    num_prompt_tokens: int = 0
    """Prompt tokens of the requests that started."""
    num_cached_tokens: int = 0
    """Of those, tokens found in the prefix cache."""
