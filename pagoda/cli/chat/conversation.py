"""What has been said, and how it is kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.core.sampling_params import SamplingParams
from pagoda.core.unreadable import UNREADABLE

MAX_FILE_BYTES = 64 << 20


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    content: str

    def as_dict(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


class SavedChat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file that /save writes and /load reads."""

    model: str
    system: str = ""
    parameters: SamplingParams
    messages: tuple[Message, ...] = ()


class Conversation:
    def __init__(self, system: str = "") -> None:
        self.system = system
        self.messages: list[Message] = []

    def with_question(self, question: str) -> list[dict[str, str]]:
        """All messages, as a chat template takes them."""
        opening = [{"role": "system", "content": self.system}] if self.system else []
        return [*opening, *(message.as_dict() for message in self.messages), {"role": "user", "content": question}]

    def add(self, question: str, answer: str) -> None:
        """A turn is there whole or not at all: many templates refuse a question that nobody answered."""
        if answer:
            self.messages += (Message("user", question), Message("assistant", answer))

    def clear(self) -> None:
        self.messages.clear()

    @property
    def num_turns(self) -> int:
        return len(self.messages) // 2


def save_chat(path: Path, chat: SavedChat) -> None:
    """The file appears complete, and never in the place of another."""
    data = msgspec.json.format(msgspec.json.encode(chat), indent=2) + b"\n"
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.exists():
            raise PagodaError(f"{path} exists already and is kept; give another name")
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise PagodaError(f"cannot save {path}: {error.strerror or error}") from None


def load_chat(path: Path) -> SavedChat:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise PagodaError(f"{path} is longer than {MAX_FILE_BYTES >> 20} MiB and is no saved conversation")
        return msgspec.json.decode(path.read_bytes(), type=SavedChat)
    except OSError as error:
        raise PagodaError(f"cannot load {path}: {error.strerror or error}") from None
    except UNREADABLE as error:
        raise PagodaError(f"{path} is no saved conversation: {error}") from None
