"""Prompts and conversations into token ids, off the event loop where they are long."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from pagoda.core.errors import InvalidRequest, PagodaError
from pagoda.engine.prompts import PromptReader
from pagoda.server.dialects.openai.schema import (
    ChatMessage,
    ChatRequest,
    Prompts,
    TextPart,
    TokenizeRequest,
)
from pagoda.server.errors import bad_request, from_engine, not_supported
from pagoda.server.limits import Limits, check_count
from pagoda.text import FillInPrompt

LONG_TEXT = 4096  # characters from which on tokenizing leaves the event loop
OWN_VARIABLES = frozenset(("self", "messages", "add_generation_prompt"))
MESSAGE_SIZE = 64  # characters that cost as much as the template does around a message
Result = TypeVar("Result")


async def off_loop(size: int, work: Callable[[], Result], field: str = "text") -> Result:
    """A tokenizer works outside the interpreter's lock, so a long text need not hold up the streams of others."""
    try:
        return work() if size < LONG_TEXT else await asyncio.to_thread(work)
    except PagodaError as error:
        raise from_engine(named(error, field)) from None


def named(error: PagodaError, field: str) -> PagodaError:
    """What the engine calls text or prompt has the client's own name in the error."""
    if isinstance(error, InvalidRequest) and error.field in ("text", "prompt"):
        return InvalidRequest(field, str(error).removeprefix(f"{error.field}: "))
    return error


async def read_prompts(
    prompts: Prompts, reader: PromptReader, most: int, field: str = "prompt", special: bool = True
) -> list[tuple[str | None, list[int]]]:
    """Every form of `prompt`: a text, texts, token ids, lists of token ids. `special`: a text gets the tokens that
    the model expects around it."""
    forms = split_prompts(prompts, field)
    check_count(field, len(forms), most, f"{field}s")
    size = sum(len(form) for form in forms)
    return await off_loop(size, lambda: [reader.read(form, special) for form in forms], field)


async def read_fill_in(
    prompts: Prompts, suffix: str, reader: PromptReader, most: int, special: bool = True
) -> list[FillInPrompt]:
    """Every form of `prompt`, each with the suffix behind the hole in which it ends."""
    forms = split_prompts(prompts)
    check_count("prompt", len(forms), most, "prompts")
    size = len(suffix) + sum(len(form) for form in forms)
    return await off_loop(size, lambda: reader.read_fill_in(forms, suffix, special), "prompt")


def split_prompts(prompts: Prompts, field: str = "prompt") -> list[str | list[int]]:
    if isinstance(prompts, str):
        return [prompts]
    if not prompts:
        raise bad_request(field, "is empty; give a text or token ids")
    if all(isinstance(item, int) for item in prompts):
        return [prompts]  # type: ignore[list-item]
    if all(isinstance(item, str) for item in prompts) or all(isinstance(item, list) for item in prompts):
        return list(prompts)  # type: ignore[arg-type]
    raise bad_request(field, "mixes texts and token ids; give one kind")


async def read_conversation(
    body: ChatRequest | TokenizeRequest, reader: PromptReader, limits: Limits, variables: dict[str, Any] | None = None
) -> tuple[str, list[int]]:
    messages = body.messages or []
    if not messages:
        raise bad_request("messages", "is empty; it needs at least one message")
    check_count("messages", len(messages), limits.max_messages, "messages")
    plain = [plain_message(message, number) for number, message in enumerate(messages)]
    size = sum(MESSAGE_SIZE + len(message["content"]) for message in plain)
    for name in OWN_VARIABLES.intersection(variables or ()):
        raise bad_request("chat_template_kwargs", f"{name!r} has a field of its own and cannot be given here")
    if body.continue_final_message and body.add_generation_prompt:
        raise bad_request("continue_final_message", "needs add_generation_prompt to be false: it opens no new turn")
    if body.continue_final_message:
        return await off_loop(size, lambda: reader.read_chat(open_ended(plain, reader, variables or {})))
    opens_turn = body.add_generation_prompt is not False
    return await off_loop(size, lambda: reader.read_chat(reader.render_chat(plain, opens_turn, **(variables or {}))))


def open_ended(messages: list[dict[str, Any]], reader: PromptReader, variables: dict[str, Any]) -> str:
    """The conversation up to the end of its last message's content: what a template writes behind that is left out."""
    end = uuid.uuid4().hex
    marked = [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + end}]
    text, found, _ = reader.render_chat(marked, False, **variables).rpartition(end)
    if not found:
        raise bad_request("continue_final_message", "the chat template does not show the last message")
    return text


def plain_message(message: ChatMessage, number: int) -> dict[str, Any]:
    """What a chat template expects: parts of text become one text."""
    content = message.content
    if isinstance(content, list):
        for index, part in enumerate(content):
            if not isinstance(part, TextPart):
                raise not_supported(f"messages[{number}].content[{index}]", f"content of type {_type_of(part)}")
        content = "".join(part.text for part in content if isinstance(part, TextPart))
    if content is None and message.role != "assistant":
        raise bad_request(f"messages[{number}].content", "is missing")
    role = "system" if message.role == "developer" else message.role
    plain: dict[str, Any] = {"role": role, "content": content or ""}
    for name in ("name", "tool_calls", "tool_call_id", "reasoning_content"):
        value = getattr(message, name)
        if value is not None:
            plain[name] = value
    return plain


def _type_of(part: object) -> str:
    return repr(getattr(type(part), "__struct_config__").tag)  # noqa: B009 - msgspec keeps the tag there
