"""Workloads drawn from distributions: independent questions, questions behind shared prefixes, conversations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pagoda.bench.conversation import Conversation, Prompt, Question
from pagoda.bench.lengths import Lengths
from pagoda.core.errors import InvalidRequest

PromptForm = Literal["ids", "text"]
FIRST_ID = 10
# Short words that are one token behind a space in the usual vocabularies. The server's own count is what is reported.
_TEXT = """
    the of and to in is was for on that with as his they be at one have this from or had by hot but some what there
    we can out other were all your when up use word how said an each she which do their time if will way about many
    then them would write like so these her long make thing see him two has look more day could go come did my sound
    no most number who over know water than call first people may down side been now find any new work part take get
    place made live where after back little only round man year came show every good me give our under name very
"""
WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Conversations without end, the same ones for the same seed."""

    input_lengths: Lengths
    output_lengths: Lengths
    form: PromptForm = "ids"
    end_of_ids: int = 32_000
    prefix_len: int = 0
    """Tokens that all questions of one group begin with."""
    num_prefixes: int = 1
    """Groups of questions, each with a prefix of its own."""
    num_turns: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_prefixes", "num_turns"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"--{name.replace('_', '-')}", f"must be at least 1, not {getattr(self, name)}")
        if self.prefix_len < 0:
            raise InvalidRequest("--prefix-len", f"must not be negative, not {self.prefix_len}")
        if self.end_of_ids <= FIRST_ID:
            raise InvalidRequest("--vocab-size", f"must be above {FIRST_ID}, not {self.end_of_ids}")
        if self.num_turns > 1 and self.form == "ids":
            raise InvalidRequest("--num-turns", "answers come back as text, so several turns need --prompts text")

    def conversations(self) -> Iterator[Conversation]:
        rng = random.Random(self.seed)
        prefixes = [self._prompt(rng, self.prefix_len) for _ in range(self.num_prefixes)]
        while True:
            prefix = prefixes[rng.randrange(len(prefixes))]
            first = self._question(rng, prefix)
            rest = (self._question(rng) for _ in range(self.num_turns - 1))
            yield Conversation((first, *rest))

    def _question(self, rng: random.Random, prefix: Prompt | None = None) -> Question:
        own = self._prompt(rng, self.input_lengths.draw(rng))
        max_tokens = self.output_lengths.draw(rng)
        return Question(prefix + own if prefix else own, max_tokens)  # type: ignore[operator]

    def _prompt(self, rng: random.Random, length: int) -> Prompt:
        if self.form == "ids":
            return list(map(partial(rng.randrange, FIRST_ID), [self.end_of_ids] * length))
        return "".join(f" {word}" for word in rng.choices(WORDS, k=length))
