"""Watches requests go by and counts."""

from __future__ import annotations

from pagoda.engine.messages import Embedded, NewTokens, Started, Update
from pagoda.engine.output import RequestOutput
from pagoda.observability.requests import RequestStatistics


class RequestObserver:
    """Called with every update of the engine, before it changes the output."""

    def __init__(self) -> None:
        self.statistics = RequestStatistics()

    def take(self, update: Update, output: RequestOutput) -> None:
        match update:
            case NewTokens():
                self._tokens(update, output)
            case Embedded():
                self.statistics.ended["stop"] += 1
                self.statistics.whole.add(max(0.0, update.time - output.metrics.arrival_time))
            case Started():
                found = self.statistics
                found.queued.add(max(0.0, update.time - output.metrics.arrival_time))
                found.num_prompt_tokens += len(output.prompt_token_ids)
                found.num_cached_tokens += update.num_cached_tokens
                found.prompt_lengths.add(len(output.prompt_token_ids))

    def _tokens(self, update: NewTokens, output: RequestOutput) -> None:
        found, metrics = self.statistics, output.metrics
        answer = output.outputs[update.sample_index]
        if answer.finished:
            return  # a stop string ended it; these were under way
        count = len(update.token_ids)
        found.num_new_tokens += count
        if count and metrics.first_token_time is None:
            found.first_token.add(max(0.0, update.time - metrics.arrival_time))
            if metrics.first_scheduled_time is not None:
                found.prefill.add(max(0.0, update.time - metrics.first_scheduled_time))
        elif count and len(output.outputs) == 1 and metrics.last_token_time is not None:
            found.between_tokens.add(max(0.0, update.time - metrics.last_token_time) / count, count)
        if update.finish_reason is not None:
            found.ended[update.finish_reason] += 1
            found.answer_lengths.add(len(answer.token_ids) + count)
            found.whole.add(max(0.0, update.time - metrics.arrival_time))
            if metrics.first_token_time is not None:
                found.decode.add(max(0.0, update.time - metrics.first_token_time))
