"""The token ids of every answer in the making. The scheduler counts them; here they have values."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pagoda.core.errors import EngineError
from pagoda.core.plan import RowPayload, RowStart, StepPlan
from pagoda.core.request import Request
from pagoda.core.result import StepResult, TokenLogprob
from pagoda.engine.messages import Embedded, NewTokens, PromptScores, Rejected, Started, Update
from pagoda.kv_cache import extend_chain
from pagoda.scheduler import Finished, PageNames, StepOutcome


@dataclass(eq=False, slots=True)
class Answer:
    """One sample of one request."""

    sequence: int
    sample_index: int
    request: Request
    limit: int
    token_ids: list[int]
    last_name: bytes
    num_named: int
    """Full pages whose names the scheduler has."""
    end_token_ids: frozenset[int]
    """Tokens that end it, its own stop tokens included."""
    num_before_end: int
    """Tokens, the prompt's included, that come before any of those counts."""


@dataclass(eq=False, slots=True)
class Accepted:
    """A request that is being worked on."""

    request: Request
    seed: int
    limit: int
    page_names: tuple[bytes, ...]
    root_name: bytes
    unfinished: set[int]
    """Samples whose answers are not complete."""
    answers: dict[int, Answer] = field(default_factory=dict)  # by sample index, those that ever ran
    num_scored: int = 0
    """Prompt tokens whose scores were sent; a restart computes them again."""
    has_started: bool = False


def embedded(request_id: str, vector: npt.NDArray[np.float32], time: float) -> Embedded | Rejected:
    if not np.isfinite(vector).all():
        return Rejected.of(request_id, EngineError("the model's hidden states are not all numbers"))
    return Embedded(request_id, time, vector.astype("<f4").tobytes())


class AnswerBook:
    """Turns plans into payloads and results into tokens: the only place that ties sequences to token ids."""

    def __init__(self, page_size: int, names_pages: bool, end_token_ids: Iterable[int]) -> None:
        self._page_size = page_size
        self._names_pages = names_pages
        self._end_token_ids = frozenset(end_token_ids)
        self._requests: dict[str, Accepted] = {}
        self._answers: dict[int, Answer] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def accept(self, request: Request, seed: int, limit: int, page_names: tuple[bytes, ...], root: bytes) -> None:
        samples = set(range(request.sampling.n))
        self._requests[request.request_id] = Accepted(request, seed, limit, page_names, root, samples)

    def get(self, request_id: str) -> Accepted | None:
        return self._requests.get(request_id)

    def start(self, start: RowStart, time: float) -> tuple[RowPayload, Started | None]:
        """What the executor must know of a new tenant, and the news if its request never ran before."""
        accepted = self._requests[start.request_id]
        answer = accepted.answers.get(start.sample_index) or self._open(accepted, start)
        payload = RowPayload(
            sequence=start.sequence,
            token_ids=np.array(answer.token_ids, np.int32),
            num_prompt_tokens=len(answer.request.prompt_token_ids),
            sampling=answer.request.sampling,
            seed=accepted.seed,
            pooling=accepted.request.pooling if accepted.request.task == "embed" else "",
        )
        if accepted.has_started:
            return payload, None
        accepted.has_started = True
        return payload, Started(start.request_id, time, accepted.seed, start.num_computed)

    def take(self, plan: StepPlan, result: StepResult, time: float) -> tuple[StepOutcome, list[Update]]:
        """Read a result: the counts go to the scheduler, the tokens to whoever waits for them."""
        updates: list[Update] = self._scores(plan, result)
        finished: list[Finished] = []
        names: list[PageNames] = []
        token_ids = result.token_ids.tolist()
        size = self._page_size if self._names_pages else sys.maxsize
        position = 0
        for entry, (sequence, count) in enumerate(zip(plan.sequences.tolist(), result.num_new.tolist(), strict=True)):
            if not count:
                continue
            new = token_ids[position : position + count]
            position += count
            answer = self._answers.get(sequence)
            if answer is None:
                continue  # it ended while this step was under way: what came after does not count
            if entry in result.broken:
                request_id = answer.request.request_id
                update = NewTokens(request_id, answer.sample_index, time, (), finish_reason="error")
            else:
                update = self._extend(answer, new, result.logprobs.get(entry, ()), time)
            updates.append(update)
            if update.finish_reason is not None:
                finished.append(Finished(sequence, update.finish_reason))
                self._close(answer)
            elif len(answer.token_ids) >= (answer.num_named + 1) * size:
                names.append(self._new_names(answer))
        for entry, vector in result.pooled.items():
            answer = self._answers.get(int(plan.sequences[entry]))
            if answer is not None:
                updates.append(embedded(answer.request.request_id, vector, time))
                finished.append(Finished(answer.sequence, "stop"))
                self._close(answer)
        refused = any(plan.num_drafts.tolist())
        outcome = StepOutcome(
            step_id=plan.step_id,
            num_new=tuple(result.num_new.tolist()) if refused else None,
            finished=tuple(finished),
            page_names=tuple(names),
        )
        return outcome, updates

    def stop(self, request_id: str, sample_index: int) -> int | None:
        """One answer is complete; the number of its sequence, if it has one."""
        accepted = self._requests.get(request_id)
        answer = accepted.answers.get(sample_index) if accepted else None
        if answer is None:
            return None
        self._close(answer)
        return answer.sequence

    def forget(self, request_id: str) -> None:
        accepted = self._requests.pop(request_id, None)
        for answer in accepted.answers.values() if accepted else ():
            del self._answers[answer.sequence]

    def _open(self, accepted: Accepted, start: RowStart) -> Answer:
        sampling = accepted.request.sampling
        answer = Answer(
            sequence=start.sequence,
            sample_index=start.sample_index,
            request=accepted.request,
            limit=accepted.limit,
            token_ids=list(accepted.request.prompt_token_ids),
            last_name=accepted.page_names[-1] if accepted.page_names else accepted.root_name,
            num_named=len(accepted.page_names),
            end_token_ids=frozenset(sampling.stop_token_ids)
            | (frozenset() if sampling.ignore_eos else self._end_token_ids),
            num_before_end=len(accepted.request.prompt_token_ids) + sampling.min_tokens,
        )
        accepted.answers[start.sample_index] = answer
        self._answers[start.sequence] = answer
        return answer

    def _close(self, answer: Answer) -> None:
        accepted = self._requests[answer.request.request_id]
        del accepted.answers[answer.sample_index]
        del self._answers[answer.sequence]
        accepted.unfinished.remove(answer.sample_index)
        if not accepted.unfinished:
            del self._requests[answer.request.request_id]

    def _extend(self, answer: Answer, new: list[int], logprobs: tuple[TokenLogprob, ...], time: float) -> NewTokens:
        """Add tokens up to the one that ends the answer; accepted drafts beyond it are dropped."""
        known, request_id = answer.token_ids, answer.request.request_id
        for count, token_id in enumerate(new, start=1):
            known.append(token_id)
            if token_id in answer.end_token_ids and len(known) > answer.num_before_end:
                stop = token_id if token_id in answer.request.sampling.stop_token_ids else None
                return NewTokens(
                    request_id, answer.sample_index, time, tuple(new[:count]), logprobs[:count], "stop", stop
                )
            if len(known) >= answer.limit:
                return NewTokens(request_id, answer.sample_index, time, tuple(new[:count]), logprobs[:count], "length")
        return NewTokens(request_id, answer.sample_index, time, tuple(new), logprobs)

    def _new_names(self, answer: Answer) -> PageNames:
        size = self._page_size
        added = extend_chain(answer.last_name, answer.token_ids[answer.num_named * size :], size)
        answer.num_named += len(added)
        answer.last_name = added[-1]
        return PageNames(answer.sequence, tuple(added))

    def _scores(self, plan: StepPlan, result: StepResult) -> list[Update]:
        updates: list[Update] = []
        for entry, scores in result.prompt_logprobs.items():
            answer = self._answers.get(int(plan.sequences[entry]))
            if answer is None or answer.sample_index:
                continue
            accepted = self._requests[answer.request.request_id]
            fresh = tuple(score for score in scores if score[0] > accepted.num_scored)
            if fresh:
                accepted.num_scored = fresh[-1][0]
                updates.append(PromptScores(answer.request.request_id, fresh))
        return updates
