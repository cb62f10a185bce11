"""What engines did, as plain numbers that go on counting when one engine follows another."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagoda.observability.histogram import TOKENS, Histogram


@dataclass
class EngineWork:
    """Fed with the totals that each engine reports; a new engine begins at 0 again."""

    num_starts: int = 0
    """Engines that became ready."""
    num_steps: int = 0
    num_preemptions: int = 0
    num_computed_tokens: int = 0
    num_halved_steps: int = 0
    step_seconds: Histogram = field(default_factory=Histogram)
    step_tokens: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    """Tokens that went through the model in a step."""
    _last: tuple[int, int, int, int] = (0, 0, 0, 0)

    def take(
        self,
        num_steps: int,
        num_preemptions: int,
        num_computed_tokens: int,
        step_seconds: float,
        num_halved_steps: int = 0,
    ) -> None:
        """A step was made, or none: then only the time is 0."""
        now = (num_steps, num_preemptions, num_computed_tokens, num_halved_steps)
        new_steps, new_preemptions, new_tokens, new_halved = (a - b for a, b in zip(now, self._last, strict=True))
        self._last = now
        self.num_steps += new_steps
        self.num_preemptions += new_preemptions
        self.num_computed_tokens += new_tokens
        self.num_halved_steps += new_halved
        if step_seconds:
            self.step_seconds.add(step_seconds)
            self.step_tokens.add(new_tokens)

    def begin_anew(self) -> None:
        """The engine is gone; the next one counts from 0."""
        self._last = (0, 0, 0, 0)
