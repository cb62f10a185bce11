"""Chat templates: from a list of messages to the text that a model was trained on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pagoda.core.errors import InvalidRequest, TemplateError
from pagoda.text.template_budget import TemplateBudget, TemplateLimits, measure, spending
from pagoda.text.template_sandbox import TemplateSandbox
from pagoda.text.tokenizer import Tokenizer

# For models without a template of their own. No model was trained on this layout, so it is used on request only.
GENERIC_TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

_DEFAULT_LIMITS = TemplateLimits()
_OWN_NAMES = frozenset(("messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"))
_PLAIN_TYPES = (str, int, float, bool, type(None))
# A conversion with a width could ask for any amount of text.
_DATE_FORMAT = re.compile(r"(?:[^%]|%[-_0^#]?[A-Za-z%])*")
_MAX_DATE_FORMAT = 256
_SANDBOX = TemplateSandbox()


class ChatTemplate:
    """A compiled template. Rendering is safe on any thread and kept within `limits`; a fault is a `TemplateError`."""

    def __init__(
        self, source: str, variables: Mapping[str, str] | None = None, limits: TemplateLimits = _DEFAULT_LIMITS
    ) -> None:
        """`variables` are the names of special tokens that the template uses, such as `bos_token`."""
        self.source = source
        self._variables = dict(variables or {})
        self._limits = limits
        if len(source.encode("utf-8", "replace")) > limits.max_source_bytes:
            raise TemplateError(f"the chat template is longer than {limits.max_source_bytes} bytes")
        try:
            with spending(TemplateBudget(limits, 0)):
                self._template = _SANDBOX.from_string(source)
        except TemplateError:
            raise
        except Exception as error:
            raise TemplateError(f"the chat template is not valid: {_one_line(error)}") from error

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, generic: bool = False) -> ChatTemplate:
        """The model's own template; one of no model's own stands in for a missing one only if `generic` says so."""
        source = tokenizer.chat_template or (GENERIC_TEMPLATE if generic else None)
        if source is None:
            raise TemplateError(
                "the model has no chat template: it is probably a base model; "
                "complete a plain prompt instead, or pass a chat template"
            )
        return cls(source, tokenizer.template_variables)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """The prompt as text. It holds its own beginning token: encode it with `add_special_tokens=False`."""
        given = {"messages": messages, "tools": tools, "documents": documents, **extra}
        _check_names(extra)
        for name, value in given.items():
            check_plain_data(name, value)
        variables = {
            **self._variables,
            **given,
            "add_generation_prompt": add_generation_prompt,
            "raise_exception": _raise_exception,
            "strftime_now": _format_now,
        }
        budget = TemplateBudget(self._limits, measure(given))
        try:
            with spending(budget):
                text = self._template.render(variables)
        except TemplateError:
            raise
        except RecursionError:
            raise TemplateError("the chat template calls itself without end") from None
        except Exception as error:
            raise TemplateError(f"the chat template failed: {_one_line(error)}") from error
        budget.check_output(text)
        return text


def check_plain_data(field: str, value: object) -> None:
    """Let only what JSON can say into a template: an object with methods would be a way out of it."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if type(current) in (list, tuple):
            waiting.extend(current)  # type: ignore[arg-type]
        elif type(current) is dict:
            waiting.extend(current)
            waiting.extend(current.values())
        elif type(current) not in _PLAIN_TYPES:
            raise InvalidRequest(
                field, f"holds a {type(current).__name__}; only text, numbers, lists and dicts may be used"
            )


def _check_names(extra: Mapping[str, Any]) -> None:
    for name in extra:
        if name in _OWN_NAMES:
            raise InvalidRequest("chat_template_kwargs", f"{name!r} is set by the engine and cannot be given")


def _raise_exception(message: Any = "") -> None:
    raise TemplateError(f"the chat template refuses these messages: {str(message)[:500]}")


def _format_now(layout: str) -> str:
    if not isinstance(layout, str) or len(layout) > _MAX_DATE_FORMAT or not _DATE_FORMAT.fullmatch(layout):
        raise TemplateError("the chat template gave a date format that is not a plain one such as '%d %b %Y'")
    return datetime.now().strftime(layout)


def _one_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__
