"""What a client says: one question, or several of which each goes on from the answers before."""

from __future__ import annotations

from dataclasses import dataclass

Message = dict[str, str]
Prompt = str | list[int] | list[Message]
"""Text, token ids, or the messages of a chat."""


@dataclass(frozen=True, slots=True)
class Question:
    prompt: Prompt
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    questions: tuple[Question, ...]
    at: float | None = None
    """Seconds from the beginning, in a trace that is played again."""


def is_messages(prompt: Prompt) -> bool:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)


def as_messages(prompt: str) -> list[Message]:
    return [{"role": "user", "content": prompt}]


def continued(before: Prompt, answer: str, question: Prompt) -> Prompt:
    """The next question behind everything said so far. Answers come as text, so token ids cannot be continued."""
    assert isinstance(question, str)
    if isinstance(before, str):
        return f"{before}{answer}\n{question}"
    assert is_messages(before)
    return [*before, {"role": "assistant", "content": answer}, *as_messages(question)]  # type: ignore[list-item]
