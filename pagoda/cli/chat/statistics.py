"""The numbers behind one answer, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagoda.engine import RequestOutput


def statistics_line(output: RequestOutput) -> str:
    answer, metrics = output.outputs[0], output.metrics
    num_tokens = len(answer.token_ids)
    parts = [plural(num_tokens, "token")]
    first, last = metrics.first_token_time, metrics.last_token_time
    if first is not None and last is not None:
        if last > first:
            parts.append(f"{(num_tokens - 1) / (last - first):.1f} tokens/s")
        parts.append(f"first after {first - metrics.arrival_time:.2f} s")
    parts.append(f"prompt {plural(len(output.prompt_token_ids), 'token')}, {output.num_cached_tokens} cached")
    parts.append(answer.finish_reason or "stopped by Ctrl-C")
    return f"[{' | '.join(parts)}]"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
