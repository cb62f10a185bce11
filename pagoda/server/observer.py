"""Watches requests and steps go by and counts."""

from __future__ import annotations

from pagoda.engine.messages import NewTokens, Started, Update
from pagoda.engine.output import RequestOutput
from pagoda.engine.wire import Report
from pagoda.observability.requests import RequestStatistics
from pagoda.observability.work import EngineWork
from pagoda.server.call import Run


class RequestObserver:
    def __init__(self) -> None:
        self.statistics = RequestStatistics()
        self.work = EngineWork()

    def take(self, update: Update, output: RequestOutput) -> None:
        """Called with every update of the engine, before it changes the output."""
        match update:
            case NewTokens():
                self._tokens(update, output)
            case Started():
                found, num_prompt = self.statistics, len(output.prompt_token_ids)
                found.queued.add(max(0.0, update.time - output.metrics.arrival_time))
                found.num_prompt_tokens += num_prompt
                found.num_cached_tokens += update.num_cached_tokens
                found.prompt_lengths.add(num_prompt)
                found.computed_lengths.add(num_prompt - update.num_cached_tokens)

    def take_report(self, report: Report) -> None:
        """Called after every step."""
        self.work.take(
            report.num_steps,
            report.num_preemptions,
            report.num_computed_tokens,
            report.step_seconds,
            report.num_halved_steps,
        )

    def begin(self, run: Run) -> None:
        """A job was let in."""
        job, found = run.job, self.statistics
        use = found.key(job.key.name)
        use.num_requests += len(job.prompts)
        use.num_prompt_tokens += job.num_prompt_tokens
        if job.task != "generate":
            return
        found.asked_answers.add(job.sampling.n, len(job.prompts))
        if job.sampling.max_tokens is not None:
            found.asked_lengths.add(job.sampling.max_tokens, len(job.prompts))

    def end(self, run: Run) -> None:
        """A job is over, whichever way."""
        found = self.statistics
        found.key(run.job.key.name).num_new_tokens += run.num_new_tokens
        found.ended.update(run.finish_reasons)
        for output in run.outputs.values():
            if output.finished:
                self._finished(output)

    def _tokens(self, update: NewTokens, output: RequestOutput) -> None:
        found, metrics = self.statistics, output.metrics
        answer = output.outputs[update.sample_index]
        count = len(update.token_ids)
        if answer.finished or not count:
            return  # where a stop string ended it, these were under way
        found.num_new_tokens += count
        if answer.last_token_time is not None:
            found.between_tokens.add(max(0.0, update.time - answer.last_token_time) / count, count)
        elif metrics.first_token_time is None:
            found.first_token.add(max(0.0, update.time - metrics.arrival_time))
            if metrics.first_scheduled_time is not None:
                found.prefill.add(max(0.0, update.time - metrics.first_scheduled_time))

    def _finished(self, output: RequestOutput) -> None:
        found, metrics = self.statistics, output.metrics
        if metrics.finished_time is not None:
            found.whole.add(max(0.0, metrics.finished_time - metrics.arrival_time))
            if metrics.first_scheduled_time is not None:
                found.running.add(max(0.0, metrics.finished_time - metrics.first_scheduled_time))
        if metrics.first_token_time is None:
            return  # a vector was wanted, and no token
        lengths = [len(answer.token_ids) for answer in output.outputs]
        found.longest_answers.add(max(lengths))
        for answer, length in zip(output.outputs, lengths, strict=True):
            found.answer_lengths.add(length)
            if answer.last_token_time is not None:
                seconds = max(0.0, answer.last_token_time - metrics.first_token_time)
                found.decode.add(seconds)
                if length > 1:
                    found.per_token.add(seconds / (length - 1))
