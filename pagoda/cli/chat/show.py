"""What /show tells, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pagoda.cli.chat.parameters import PARAMETERS
from pagoda.cli.chat.session import ChatSession
from pagoda.cli.chat.statistics import plural
from pagoda.cli.formatting import format_bytes
from pagoda.core.sampling_params import SamplingParams

Facts = Iterator[tuple[str, str]]
_ALWAYS_SHOWN = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop")


def _model(session: ChatSession) -> Facts:
    config = session.llm.engine.model.config
    yield "model", session.model
    yield "family", f"{config.family}, {config.num_layers} layers, {config.vocab_size} tokens in the vocabulary"
    yield "context", f"{session.llm.engine.memory.max_model_len} tokens; the model allows {config.max_positions}"


def _parameters(session: ChatSession) -> Facts:
    usual = SamplingParams()
    for name in PARAMETERS:
        value = getattr(session.sampling, name)
        if name in _ALWAYS_SHOWN or value != getattr(usual, name):
            yield name, repr(value)


def _memory(session: ChatSession) -> Facts:
    plan, page_size = session.llm.engine.memory, session.llm.engine.config.block_size
    pages = " + ".join(str(count) for count in plan.num_pages)
    yield "weights", format_bytes(plan.weight_bytes)
    yield "cache", f"{format_bytes(plan.cache_bytes)} in {pages} pages of {page_size} tokens"
    yield "allowed", format_bytes(plan.budget_bytes)


def _template(session: ChatSession) -> Facts:
    template = session.llm.engine.tokenizer.chat_template
    yield "template", f"{len(template)} characters; /show template prints it" if template else "none"


def _conversation(session: ChatSession) -> Facts:
    conversation = session.conversation
    num_characters = sum(len(message.content) for message in conversation.messages)
    yield "system", repr(conversation.system) if conversation.system else "the template's own"
    yield "conversation", f"{plural(conversation.num_turns, 'turn')}, {plural(num_characters, 'character')}"


PARTS: dict[str, Callable[[ChatSession], Facts]] = {
    "model": _model,
    "parameters": _parameters,
    "memory": _memory,
    "template": _template,
    "conversation": _conversation,
}


def lines_about(session: ChatSession, part: str) -> Iterator[str]:
    """One of PARTS, or all of them for an empty name."""
    if part == "template":
        yield session.llm.engine.tokenizer.chat_template or "the model has no chat template"
        return
    for name in [part] if part else PARTS:
        yield from (f"  {label:<20}{value}" for label, value in PARTS[name](session))
