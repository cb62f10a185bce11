"""The bodies of OpenAI's API as clients send them, with vLLM's extra fields. Other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pagoda.core.sampling_params import MAX_INT32

TokenId = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]
RequestId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
Int32 = Annotated[int, msgspec.Meta(ge=-MAX_INT32 - 1, le=MAX_INT32)]
Prompts = str | list[str | TokenId | list[TokenId]]
"""A text, texts, token ids, or lists of token ids; which of them is checked where it is read."""


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool = False
    """One more chunk at the end, with the usage."""
    continuous_usage_stats: bool = False
    """The usage so far in every chunk."""


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: Any = None


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    input_audio: Any = None


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    file: Any = None


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


Part = TextPart | ImagePart | AudioPart | FilePart | RefusalPart


class ChatMessage(msgspec.Struct, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Sampled(msgspec.Struct, kw_only=True):
    """What chat and text completions have in common. None stands for the default of the API."""

    model: str | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    # What vLLM's users send beside OpenAI's own fields.
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[TokenId] | None = None
    allowed_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: int | None = None
    priority: Int32 | None = None
    timeout: float | None = None
    """Ours: seconds after which the request is given up, as the header X-Request-Timeout says it, too."""
    cache_salt: str | None = None
    request_id: RequestId | None = None
    """What the answer is called, behind `chatcmpl-` or `cmpl-`."""
    return_token_ids: bool | None = None
    """Give the token ids of prompt and answer beside their text."""
    # Known, and refused where they ask for something: a quiet no would be a lie.
    best_of: int | None = None
    use_beam_search: bool | None = None
    bad_words: list[Any] | None = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    prompt_embeds: Any = None
    truncate_prompt_tokens: int | None = None
    logits_processors: Any = None
    length_penalty: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    dry_multiplier: float | None = None
    mirostat: int | None = None


class ChatRequest(Sampled, kw_only=True):
    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    """Open the answer's turn; the default, unless the last message is continued."""
    continue_final_message: bool | None = None
    """The answer goes on with the last message instead of following it."""
    chat_template_kwargs: dict[str, Any] | None = None
    # Refused where they ask for something.
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: Any = None
    modalities: list[str] | None = None
    audio: Any = None
    chat_template: str | None = None
    web_search_options: Any = None
    reasoning_effort: str | None = None


class CompletionRequest(Sampled, kw_only=True):
    prompt: Prompts
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None
    """What follows on the answer, where the model has tokens for that; `echo` repeats the prompt alone."""
    add_special_tokens: bool | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool = False


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    tokens: list[TokenId]


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    pooling: Literal["mean", "last"] | None = None
    """Ours: what of the tokens' hidden states becomes the vector; mean unless said otherwise."""
    priority: int | None = None
    cache_salt: str | None = None
    timeout: float | None = None
