"""The forms in which callers give prompts, made one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pagoda.core.errors import InvalidRequest
from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.text import ChatTemplate, FillInFrame, FillInPrompt, Tokenizer

Prompt = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}."""
Messages = Sequence[Mapping[str, Any]]
BYTES_PER_CONTEXT_TOKEN = 8  # a longer text cannot fit, so it is refused before it is tokenized


class PromptReader:
    """Turns prompts and conversations into requests."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_model_len: int,
        bytes_per_token: int = BYTES_PER_CONTEXT_TOKEN,
        default_sampling: SamplingParams | None = None,
    ) -> None:
        """`default_sampling`: of requests that say nothing of it."""
        self._tokenizer = tokenizer
        self._default_sampling = default_sampling or SamplingParams()
        self._max_bytes = max_model_len * bytes_per_token
        self._template: ChatTemplate | None = None
        self._counter = itertools.count()

    def read(self, prompt: Any, add_special_tokens: bool = True) -> tuple[str | None, list[int]]:
        """Any form of `Prompt`; its text, if it has one, and its token ids."""
        if isinstance(prompt, Mapping):
            return self._read_mapping(prompt)
        if isinstance(prompt, str):
            return prompt, self._tokenizer.encode(prompt, add_special_tokens, max_bytes=self._max_bytes)
        if not isinstance(prompt, list | tuple) or set(map(type, prompt)) - {int}:
            raise InvalidRequest("prompt", f"must be a text or a list of token ids, not {_kind(prompt)}")
        return None, list(prompt)

    def read_fill_in(
        self, prompts: Sequence[str | list[int]], suffix: str, add_special_tokens: bool = True
    ) -> list[FillInPrompt]:
        """Prompts that end in a hole, behind which the suffix stands."""
        frame = FillInFrame(self._tokenizer, self._max_bytes)
        try:
            behind = frame.encode_behind(suffix)
        except InvalidRequest as error:
            raise InvalidRequest("suffix", str(error).removeprefix(f"{error.field}: ")) from None
        return [frame.read(prompt, behind, add_special_tokens) for prompt in prompts]

    def apart(self, prompts: Any) -> list[Any]:
        """One prompt or several, not yet read. A list of whole numbers is one prompt."""
        if isinstance(prompts, str | Mapping):
            return [prompts]
        if not isinstance(prompts, list | tuple):
            raise InvalidRequest("prompts", f"must be a prompt or a list of prompts, not {type(prompts).__name__}")
        return [prompts] if prompts and type(prompts[0]) is int else list(prompts)

    def conversations(self, messages: Any) -> list[Messages]:
        """One conversation or several. A list of messages is one."""
        if not isinstance(messages, list | tuple):
            raise InvalidRequest("messages", f"must be a list of messages, not {type(messages).__name__}")
        if messages and isinstance(messages[0], Mapping):
            return [messages]
        return list(messages)

    def render_chat(self, messages: Messages, add_generation_prompt: bool = True, **variables: Any) -> str:
        if not isinstance(messages, list | tuple) or not all(isinstance(message, Mapping) for message in messages):
            raise InvalidRequest("messages", "must be a list of messages, each with a role and a content")
        if self._template is None:
            self._template = ChatTemplate.of_tokenizer(self._tokenizer)
        return self._template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def read_chat(self, text: str) -> tuple[str, list[int]]:
        """A rendered conversation; its template has written the special tokens itself."""
        return text, self._tokenizer.encode(text, add_special_tokens=False, max_bytes=self._max_bytes)

    def request(
        self, token_ids: Sequence[int], sampling: SamplingParams | None, request_id: str | None = None, **extra: Any
    ) -> Request:
        name = request_id if request_id is not None else str(next(self._counter))
        sampling = sampling or self._default_sampling
        return Request(request_id=name, prompt_token_ids=tuple(token_ids), sampling=sampling, **extra)

    def _read_mapping(self, prompt: Mapping[str, Any]) -> tuple[str | None, list[int]]:
        unknown = set(prompt) - {"prompt", "prompt_token_ids"}
        if unknown or not prompt:
            named = ", ".join(repr(key) for key in unknown) or "none"
            raise InvalidRequest("prompt", f"takes the keys 'prompt' or 'prompt_token_ids', not {named}")
        text = prompt.get("prompt")
        if text is not None and not isinstance(text, str):
            raise InvalidRequest("prompt", f"must be a text, not {_kind(text)}")
        token_ids = prompt.get("prompt_token_ids")
        if token_ids is None:
            return self.read(text)
        if isinstance(token_ids, str | Mapping):
            raise InvalidRequest("prompt_token_ids", f"must be a list of token ids, not {_kind(token_ids)}")
        return text, self.read(token_ids)[1]


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        odd = next((item for item in value if type(item) is not int), 0)
        return f"a list with a {type(odd).__name__} in it"
    return type(value).__name__
