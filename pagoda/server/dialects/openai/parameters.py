"""From the fields of a body to sampling parameters; what is known and cannot be honoured is refused by name."""

from __future__ import annotations

from typing import Any

from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.core.sampling_params import SamplingParams
from pagoda.server.dialects.openai.schema import ChatRequest, CompletionRequest, Sampled
from pagoda.server.errors import bad_request, not_supported
from pagoda.server.limits import Limits, check_count

SAME_NAME = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "min_tokens", "stop_token_ids", "allowed_token_ids", "ignore_eos", "skip_special_tokens"),
    *("include_stop_str_in_output", "prompt_logprobs"),
)
# A field that asks for nothing with this value is no reason to refuse.
ASKS_FOR_NOTHING: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (False,),
    "bad_words": ([],),
    "structured_outputs": ({},),
    "length_penalty": (1.0,),
    "top_n_sigma": (0.0, -1.0),
    "xtc_probability": (0.0,),
    "dry_multiplier": (0.0,),
    "mirostat": (0,),
    "truncate_prompt_tokens": (),
    "prompt_embeds": (),
    "logits_processors": ([],),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
}
CHAT_ASKS_FOR_NOTHING: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": ([], ["text"]),
    "audio": (),
    "chat_template": (),
    "web_search_options": (),
}


def sampling_params(body: Sampled, limits: Limits, defaults: SamplingDefaults, **more: Any) -> SamplingParams:
    """`more` holds what chat and text completions call differently; `defaults` count where the body says nothing."""
    refuse_unsupported(body, ASKS_FOR_NOTHING)
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options", "needs stream to be true")
    num_answers = body.n if body.n is not None else 1
    check_count("n", num_answers, limits.max_n, "answers")
    if body.best_of is not None and body.best_of != num_answers:
        raise not_supported("best_of", "a best_of other than n")
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    check_count("stop", len(stop), limits.max_stop, "stop strings")
    for text in stop:
        if len(text.encode()) > limits.max_stop_bytes:
            raise bad_request("stop", f"a stop string is longer than {limits.max_stop_bytes} bytes")
    given = {name: getattr(body, name) for name in SAME_NAME if getattr(body, name) is not None}
    for name in ("logprobs", "prompt_logprobs"):
        count = more.get(name) or given.get(name) or 0
        check_count(name, count, limits.max_logprobs, "log-probabilities")
    given = defaults.beneath(given)
    try:
        return SamplingParams(n=num_answers, stop=tuple(stop), logit_bias=_logit_bias(body, limits), **given, **more)
    except InvalidRequest as error:
        raise bad_request(error.field, str(error).removeprefix(f"{error.field}: ")) from None


def refuse_unsupported(body: Sampled, known: dict[str, tuple[Any, ...]]) -> None:
    for name, harmless in known.items():
        value = getattr(body, name)
        if value is not None and value not in harmless:
            raise not_supported(name, name)


def check_chat(body: ChatRequest) -> None:
    refuse_unsupported(body, CHAT_ASKS_FOR_NOTHING)
    if body.tools and body.tool_choice != "none":
        raise not_supported("tools", "calling tools")
    if body.tool_choice not in (None, "none", "auto"):
        raise bad_request("tool_choice", "needs tools to choose from")


def chat_max_tokens(body: ChatRequest) -> int | None:
    given = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return _max_tokens("max_completion_tokens" if body.max_completion_tokens is not None else "max_tokens", given)


def completion_max_tokens(body: CompletionRequest) -> int | None:
    """What the engine is asked for: it draws at least one token, which nobody sees where none is wanted."""
    return 16 if body.max_tokens is None else max(1, _max_tokens("max_tokens", body.max_tokens, least=0) or 0)


def _max_tokens(param: str, value: int | None, least: int = 1) -> int | None:
    if value is not None and value < least:
        raise bad_request(param, f"{value} is out of range; give at least {least}")
    return None if value is None else min(value, (1 << 31) - 1)  # the context ends it sooner


def _logit_bias(body: Sampled, limits: Limits) -> dict[int, float] | None:
    if body.logit_bias is None:
        return None
    check_count("logit_bias", len(body.logit_bias), limits.max_logit_bias, "entries")
    found = {}
    for name, bias in body.logit_bias.items():
        if not (name.isascii() and name.isdigit()) or len(name) > 10:
            raise bad_request("logit_bias", "its keys must be token ids")
        found[int(name)] = bias
    return found
