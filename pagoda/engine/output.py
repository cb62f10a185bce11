"""Tokens back into text, and the objects that callers get. Field names are those that vLLM users know."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from pagoda.core.errors import PagodaError
from pagoda.core.request import FinishReason, Request
from pagoda.core.result import TokenLogprob
from pagoda.engine.messages import Embedded, NewTokens, PromptScores, Rejected, Started, StopSequence, Update
from pagoda.text import Detokenizer, StopStringMatcher, Tokenizer


class Logprob(msgspec.Struct, frozen=True, gc=False):
    """There may be tens of thousands a prompt: cheap to make, and nothing for the collector to look at."""

    logprob: float
    rank: int
    decoded_token: str | None


@dataclass(slots=True)
class CompletionOutput:
    """One answer, as far as it is known."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token id or stop string that ended it; None where the model's own end token or the length did."""
    last_token_time: float | None = None

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Times of the engine's monotonic clock, in seconds."""

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished_time: float | None = None


@dataclass(slots=True)
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    metrics: RequestMetrics
    finished: bool = False
    num_cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache."""
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    embedding: npt.NDArray[np.float32] | None = None
    """What was asked for with `embed`: a vector of length one."""
    seed: int | None = None
    """What the samples were drawn with: the request's own seed, or the one it was given."""


class _AnswerText:
    """Grows the text of one answer."""

    def __init__(self, output: CompletionOutput, request: Request, tokenizer: Tokenizer | None) -> None:
        sampling = request.sampling
        self.output = output
        self._detokenizer = None
        if tokenizer is not None and sampling.detokenize:
            self._detokenizer = Detokenizer(tokenizer, sampling.skip_special_tokens, continues_text=True)
        self._matcher = None
        if sampling.stop:
            self._matcher = StopStringMatcher(sampling.stop, sampling.include_stop_str_in_output)
        self._includes_stop = sampling.include_stop_str_in_output
        self._min_tokens = sampling.min_tokens

    def push(self, token_id: int) -> str | None:
        """Add a token; the stop string that it completed, if any."""
        if self._detokenizer is None:
            return None
        text = self._detokenizer.push(token_id)
        if self._matcher is None or len(self.output.token_ids) <= self._min_tokens:
            self.output.text += text  # no stop string counts before min_tokens, nor half of one
            return None
        step = self._matcher.push(text)
        self.output.text += step.text
        return step.match.stop if step.match else None

    def push_end(self, token_id: int) -> None:
        """The token that ended the answer is text only where stop strings are."""
        if self._includes_stop:
            self.push(token_id)

    def finish(self) -> str | None:
        """No more tokens: what was held back is shown, unless it completes a stop string after all."""
        if self._detokenizer is None:
            return None
        text = self._detokenizer.flush()
        if self._matcher is None:
            self.output.text += text
            return None
        step = self._matcher.push(text)
        self.output.text += step.text
        if step.match is not None:
            return step.match.stop
        self.output.text += self._matcher.flush()
        return None


class RequestState:
    """One request on its way to the caller."""

    def __init__(self, request: Request, prompt: str | None, arrival_time: float, tokenizer: Tokenizer | None) -> None:
        sampling = request.sampling
        self._tokenizer = tokenizer
        outputs = [CompletionOutput(index) for index in range(sampling.n)]
        for output in outputs if sampling.logprobs is not None else ():
            output.logprobs, output.cumulative_logprob = [], 0.0
        self.output = RequestOutput(
            request_id=request.request_id,
            prompt=prompt,
            prompt_token_ids=list(request.prompt_token_ids),
            outputs=outputs,
            metrics=RequestMetrics(arrival_time),
        )
        if sampling.prompt_logprobs is not None:
            self.output.prompt_logprobs = [None]  # nothing comes before the first token
        self._texts = [_AnswerText(output, request, tokenizer) for output in outputs]

    def take(self, update: Update) -> StopSequence | None:
        """Add what is new; an order for the loop if a stop string ended an answer."""
        match update:
            case NewTokens():
                return self._take_tokens(update)
            case Started():
                self.output.metrics.first_scheduled_time = update.time
                self.output.num_cached_tokens = update.num_cached_tokens
                self.output.seed = update.seed
            case Embedded():
                self.output.embedding = np.frombuffer(update.vector, "<f4")
                self._end(self.output.outputs[0], "stop", None, update.time)
            case PromptScores():
                assert self.output.prompt_logprobs is not None
                self.output.prompt_logprobs += [self._logprobs(score) for _, score in update.scores]
        return None

    def _take_tokens(self, update: NewTokens) -> StopSequence | None:
        output = self.output.outputs[update.sample_index]
        if output.finished:
            return None  # a stop string ended it; these were under way
        text = self._texts[update.sample_index]
        metrics = self.output.metrics
        if update.token_ids:
            metrics.first_token_time = metrics.first_token_time or update.time
            metrics.last_token_time = output.last_token_time = update.time
        for index, token_id in enumerate(update.token_ids):
            output.token_ids.append(token_id)
            if output.logprobs is not None and update.logprobs:
                self._add_logprob(output, update.logprobs[index])
            if update.finish_reason == "stop" and index == len(update.token_ids) - 1:
                text.push_end(token_id)
                break
            stop = text.push(token_id)
            if stop is not None:
                self._end(output, "stop", stop, update.time)
                return StopSequence(update.request_id, update.sample_index)
        if update.finish_reason is not None:
            late_stop = text.finish()
            reason: FinishReason = "stop" if late_stop else update.finish_reason
            self._end(output, reason, late_stop or update.stop_token_id, update.time)
        return None

    def _end(self, output: CompletionOutput, reason: FinishReason, stop: int | str | None, time: float) -> None:
        output.finish_reason = reason
        output.stop_reason = stop
        if all(sample.finished for sample in self.output.outputs):
            self.output.finished = True
            self.output.metrics.finished_time = time

    def _add_logprob(self, output: CompletionOutput, score: TokenLogprob) -> None:
        assert output.logprobs is not None and output.cumulative_logprob is not None
        output.logprobs.append(self._logprobs(score))
        output.cumulative_logprob += score.logprob

    def _logprobs(self, score: TokenLogprob) -> dict[int, Logprob]:
        """The likeliest tokens and the token itself, by id."""
        found = {
            token_id: Logprob(logprob, rank, self._piece(token_id))
            for rank, (token_id, logprob) in enumerate(zip(score.top_ids, score.top_logprobs, strict=True), start=1)
        }
        found[score.token_id] = Logprob(score.logprob, score.rank, self._piece(score.token_id))
        return found

    def _piece(self, token_id: int) -> str | None:
        return None if self._tokenizer is None else self._tokenizer.token_text(token_id)


class OutputProcessor:
    """All requests under way, from the caller's side."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._states: dict[str, RequestState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._states

    def open(self, request: Request, prompt: str | None, arrival_time: float) -> RequestOutput:
        state = RequestState(request, prompt, arrival_time, self._tokenizer)
        self._states[request.request_id] = state
        return state.output

    def forget(self, request_id: str) -> None:
        self._states.pop(request_id, None)

    def take(self, update: Update) -> tuple[RequestOutput | None, StopSequence | PagodaError | None]:
        """The output an update changed, and what must follow from it: an order for the loop or an error to raise."""
        state = self._states.get(update.request_id)
        if state is None:
            return None, None
        if isinstance(update, Rejected):
            del self._states[update.request_id]
            return state.output, update.error
        order = state.take(update)
        if state.output.finished:
            del self._states[update.request_id]
        return state.output, order
