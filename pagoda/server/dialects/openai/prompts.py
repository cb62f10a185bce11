"""Prompts and conversations into token ids, off the event loop where they are long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pagoda.core.errors import InvalidRequest, PagodaError
from pagoda.engine.prompts import PromptReader
from pagoda.server.dialects.openai.schema import ChatMessage, Prompts, TextPart
from pagoda.server.errors import bad_request, from_engine, not_supported
from pagoda.server.limits import Limits, check_count

LONG_TEXT = 4096  # characters from which on tokenizing leaves the event loop
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
    prompts: Prompts, reader: PromptReader, limits: Limits, field: str = "prompt"
) -> list[tuple[str | None, list[int]]]:
    """Every form of `prompt`: a text, texts, token ids, lists of token ids."""
    forms = split_prompts(prompts, field)
    check_count(field, len(forms), limits.max_prompts, "prompts")
    size = sum(len(form) for form in forms)
    return await off_loop(size, lambda: [reader.read(form) for form in forms], field)


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
    messages: list[ChatMessage], reader: PromptReader, limits: Limits, template_variables: dict[str, Any]
) -> tuple[str, list[int]]:
    check_count("messages", len(messages), limits.max_messages, "messages")
    plain = [plain_message(message, number) for number, message in enumerate(messages)]
    size = sum(len(message["content"] or "") for message in plain)
    return await off_loop(size, lambda: reader.read_chat(reader.render_chat(plain, **template_variables)))


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
    for name in ("name", "tool_calls", "tool_call_id"):
        value = getattr(message, name)
        if value is not None:
            plain[name] = value
    return plain


def _type_of(part: object) -> str:
    return repr(getattr(type(part), "__struct_config__").tag)  # noqa: B009 - msgspec keeps the tag there
