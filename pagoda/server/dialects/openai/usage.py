"""What a call cost, as OpenAI reports it. How much of the prompt was cached is always there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pagoda.engine.output import RequestOutput
from pagoda.server.call import num_new_tokens


def usage_of(outputs: Iterable[RequestOutput], counts_answer: bool = True) -> dict[str, Any]:
    num_prompt = num_cached = num_new = 0
    for output in outputs:
        num_prompt += len(output.prompt_token_ids)
        num_cached += output.num_cached_tokens
        num_new += num_new_tokens(output) if counts_answer else 0
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_new,
        "total_tokens": num_prompt + num_new,
        "prompt_tokens_details": {"cached_tokens": num_cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
