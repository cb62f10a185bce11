"""A chat with a model that is not there."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import pytest

from pagoda.cli.chat.session import ChatSession
from pagoda.cli.chat.terminal import Terminal
from pagoda.core.sampling_params import SamplingParams
from tests.fakes.chat_llm import ChatLLM


@dataclass
class Chat:
    """The session, its model, and what was written where."""

    llm: Any = field(default_factory=ChatLLM)
    answers: io.StringIO = field(default_factory=io.StringIO)
    notices: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        terminal = Terminal(self.answers, self.notices)
        self.session = ChatSession(self.llm, "model", SamplingParams(max_tokens=None), terminal)


@pytest.fixture
def chat() -> Chat:
    return Chat()
