"""The offline front door on a tiny model, held against transformers."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from pagoda import LLM, SamplingParams
from pagoda.core.errors import CapacityError, EngineError, InvalidRequest
from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.result import StepResult
from pagoda.engine.llm import STEPS_OPENED, TIMES_OPENED
from tests.engine.conftest import END, KERNELS, VOCAB_SIZE, MakeLLM

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = ["the engine", "a page holds", "who waits", "the engine plans a step, runs it and commits what came of it"]


@torch.no_grad()
def reference_logits(reference: PreTrainedModel, token_ids: list[int]) -> np.ndarray:
    return reference(torch.tensor([token_ids]), use_cache=False).logits[0].double().numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def check_clean(llm: LLM) -> None:
    loop = llm.engine.loop
    assert not loop.has_work and len(loop._answers) == 0 and len(llm._outputs) == 0
    assert all(pool.num_used == 0 for pool in loop.scheduler.cache.pools)
    assert len(loop.scheduler.board.rows.free) == loop.scheduler.config.max_num_seqs


@pytest.mark.parametrize("kernels", KERNELS)
def test_greedy_answers_are_those_of_transformers(kernels: str, make_llm: MakeLLM, tiny_reference: PreTrainedModel):
    llm = make_llm(kernels=kernels)
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [output.prompt for output in outputs] == PROMPTS
    for output in outputs:
        answer = output.outputs[0]
        logits = reference_logits(tiny_reference, output.prompt_token_ids + answer.token_ids)
        chosen = logits[len(output.prompt_token_ids) - 1 : -1].argmax(axis=-1).tolist()
        assert answer.token_ids == chosen
        assert answer.text == llm.get_tokenizer().decode(answer.token_ids, skip_special_tokens=True)
        assert (answer.finish_reason, answer.stop_reason, output.finished) == ("length", None, True)
    check_clean(llm)


def test_one_prompt_gives_a_list_of_one(llm: LLM):
    (from_text,) = llm.generate("the engine", GREEDY)
    (from_ids,) = llm.generate(from_text.prompt_token_ids, GREEDY)
    (from_mapping,) = llm.generate({"prompt_token_ids": from_text.prompt_token_ids}, GREEDY)
    assert from_text.outputs[0].token_ids == from_ids.outputs[0].token_ids == from_mapping.outputs[0].token_ids
    assert from_ids.prompt is None
    assert llm.generate([], GREEDY) == []


def test_each_prompt_may_have_its_own_parameters(llm: LLM):
    params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (1, 5, 3)]
    outputs = llm.generate(["a", "a", "a"], params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 5, 3]
    with pytest.raises(InvalidRequest, match="sampling_params: 1 given for 2"):
        llm.generate(["a", "b"], params[:1])
    with pytest.raises(InvalidRequest, match="priority: 1 given for 2"):
        llm.generate(["a", "b"], params[0], priority=[1])


def test_defaults_are_sixteen_tokens_at_temperature_one(llm: LLM):
    (output,) = llm.generate("a")
    assert len(output.outputs[0].token_ids) == 16 or output.outputs[0].finish_reason == "stop"
    assert output.seed is not None
    (again,) = llm.generate("a", SamplingParams(seed=output.seed))
    assert again.outputs[0].token_ids == output.outputs[0].token_ids, "the seed it drew repeats the answer"


@pytest.fixture
def recommending(tiny_folder: Path, tmp_path: Path) -> Path:
    """The tiny model, whose files say how to draw from it."""
    shutil.copytree(tiny_folder, tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text('{"temperature": 0.0, "repetition_penalty": 1.3}')
    return tmp_path / "model"


def test_who_says_nothing_draws_as_the_models_files_recommend(recommending: Path):
    with LLM(recommending, num_threads=1) as llm:
        defaults = llm.get_default_sampling_params()
        assert defaults == SamplingParams(temperature=0.0, repetition_penalty=1.3)
        messages = [{"role": "user", "content": "the engine"}]
        for ask in (llm.generate, lambda prompt, *params: llm.chat(messages, *params)):
            [said], [unsaid], [other] = ask("a", defaults), ask("a"), ask("a", SamplingParams(temperature=0.0))
            assert unsaid.outputs[0].token_ids == said.outputs[0].token_ids != other.outputs[0].token_ids
        *_, streamed = llm.stream("a")
        assert streamed.outputs[0].token_ids == llm.generate("a")[0].outputs[0].token_ids
        *_, streamed = llm.stream_chat(messages)
        assert streamed.outputs[0].token_ids == llm.chat(messages)[0].outputs[0].token_ids
    with LLM(recommending, num_threads=1, generation_config="none") as llm:
        assert llm.get_default_sampling_params() == SamplingParams()


def test_an_engine_seed_repeats_unseeded_requests(make_llm: MakeLLM):
    answers = []
    for seed in (1, 1, 2):
        outputs = make_llm(seed=seed).generate(["a", "a"], SamplingParams(ignore_eos=True))
        answers.append([output.outputs[0].token_ids for output in outputs])
    assert answers[0] == answers[1] != answers[2]
    assert answers[0][0] != answers[0][1]


def test_samples_are_drawn_apart_and_repeat_with_their_seed(llm: LLM):
    params = SamplingParams(n=4, seed=9, max_tokens=8, ignore_eos=True)
    first, second = (llm.generate("the engine", params)[0] for _ in range(2))
    texts = [tuple(answer.token_ids) for answer in first.outputs]
    assert len(set(texts)) == 4
    assert texts == [tuple(answer.token_ids) for answer in second.outputs]
    assert [answer.index for answer in first.outputs] == [0, 1, 2, 3]


@pytest.mark.parametrize("kernels", KERNELS)
def test_logprobs_are_those_of_transformers(kernels: str, make_llm: MakeLLM, tiny_reference: PreTrainedModel):
    params = SamplingParams(temperature=0.7, seed=4, max_tokens=6, logprobs=3, prompt_logprobs=2, ignore_eos=True)
    (output,) = make_llm(max_num_batched_tokens=8, kernels=kernels).generate(PROMPTS[3], params)
    prompt, answer = output.prompt_token_ids, output.outputs[0]
    expected = log_softmax(reference_logits(tiny_reference, prompt + answer.token_ids))
    assert len(output.prompt_logprobs) == len(prompt) and output.prompt_logprobs[0] is None
    assert len(answer.logprobs) == len(answer.token_ids)
    entries = output.prompt_logprobs[1:] + answer.logprobs
    for place, (entry, token_id) in enumerate(zip(entries, (prompt + answer.token_ids)[1:], strict=True)):
        num_top = 2 if place < len(prompt) - 1 else 3
        assert token_id in entry and num_top <= len(entry) <= num_top + 1
        best = np.argsort(-expected[place], kind="stable")[:num_top].tolist()
        assert set(entry) == {token_id, *best}
        for known, score in entry.items():
            assert math.isclose(score.logprob, expected[place, known], abs_tol=1e-4)
            assert score.rank == 1 + int((expected[place] > expected[place, known]).sum())
            assert score.decoded_token is not None
    drawn = expected[len(prompt) - 1 : -1][range(6), answer.token_ids].sum()
    assert math.isclose(answer.cumulative_logprob, drawn, abs_tol=1e-3)


def test_the_models_end_token_ends_an_answer(llm: LLM):
    end = llm.get_tokenizer().eos_id
    force = {"logit_bias": {end: 100.0}, "temperature": 0, "max_tokens": 5}
    answer = llm.generate("a", SamplingParams(**force))[0].outputs[0]
    assert (answer.token_ids, answer.text, answer.finish_reason, answer.stop_reason) == ([end], "", "stop", None)
    answer = llm.generate("a", SamplingParams(**force, min_tokens=3))[0].outputs[0]
    assert len(answer.token_ids) == 4 and answer.token_ids.count(end) == 1
    answer = llm.generate("a", SamplingParams(**force, ignore_eos=True, skip_special_tokens=False))[0].outputs[0]
    assert answer.token_ids == [end] * 5 and answer.finish_reason == "length" and answer.text == END * 5


def test_stop_ids_and_strings(llm: LLM):
    (plain,) = llm.generate("the engine", GREEDY)
    answer = plain.outputs[0]
    stop_id = answer.token_ids[4]
    first = answer.token_ids.index(stop_id)
    (by_id,) = llm.generate("the engine", SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[stop_id]))
    assert by_id.outputs[0].token_ids == answer.token_ids[: first + 1]
    assert by_id.outputs[0].stop_reason == stop_id
    word = next(llm.get_tokenizer().decode([t]) for t in answer.token_ids if t > 256)
    (by_text,) = llm.generate("the engine", SamplingParams(temperature=0, max_tokens=12, stop=word))
    assert by_text.outputs[0].text == answer.text.split(word)[0]
    assert by_text.outputs[0].stop_reason == word and by_text.outputs[0].finish_reason == "stop"
    check_clean(llm)


def test_allowed_banned_and_penalised_tokens(llm: LLM):
    (output,) = llm.generate("a", SamplingParams(temperature=1, max_tokens=20, allowed_token_ids=[30, 31, 32]))
    assert set(output.outputs[0].token_ids) <= {30, 31, 32}
    (plain,) = llm.generate("a", GREEDY)
    banned = plain.outputs[0].token_ids[0]
    params = SamplingParams(temperature=0, max_tokens=12, banned_token_ids=[banned], ignore_eos=True)
    assert banned not in llm.generate("a", params)[0].outputs[0].token_ids
    params = SamplingParams(temperature=0, max_tokens=40, presence_penalty=2, frequency_penalty=2, ignore_eos=True)
    drawn = llm.generate("a", params)[0].outputs[0].token_ids
    assert len(set(drawn)) > 30


def test_the_context_bounds_the_answer(make_llm: MakeLLM):
    llm = make_llm(max_model_len=32)
    (output,) = llm.generate([[5] * 20], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
    assert len(output.outputs[0].token_ids) == 12 and output.outputs[0].finish_reason == "length"
    with pytest.raises(InvalidRequest, match="prompt: has 32 tokens; max_model_len is 32"):
        llm.generate([[5] * 32], GREEDY)


def test_a_bad_request_stops_the_whole_batch_before_it_starts(llm: LLM):
    for bad in ([], [VOCAB_SIZE], [-1]):
        with pytest.raises(InvalidRequest, match="^prompt"):
            llm.generate([[5, 6], bad], GREEDY)
    with pytest.raises(InvalidRequest, match="^stop_token_ids"):
        llm.generate("a", SamplingParams(stop_token_ids=[VOCAB_SIZE]))
    assert llm.engine.loop.counters.num_requests == 0
    check_clean(llm)


def test_chat_uses_the_models_template(llm: LLM):
    talk = [{"role": "user", "content": "hi"}]
    (one,) = llm.chat(talk, GREEDY)
    assert one.prompt == "<|user|>hi\n<|assistant|>"
    outputs = llm.chat([talk, talk[:1] * 2], GREEDY)
    assert [output.prompt for output in outputs] == [one.prompt, "<|user|>hi\n<|user|>hi\n<|assistant|>"]
    assert outputs[0].outputs[0].token_ids == one.outputs[0].token_ids
    (plain,) = llm.generate(one.prompt, GREEDY)
    assert plain.outputs[0].token_ids == one.outputs[0].token_ids
    (without,) = llm.chat(talk, GREEDY, add_generation_prompt=False)
    assert without.prompt == "<|user|>hi\n"


@pytest.mark.parametrize("bad", ["hi", {"role": "user", "content": "hi"}, [["hi"]], [5], 5, None], ids=repr)
def test_what_is_no_conversation_is_refused(llm: LLM, bad):
    with pytest.raises(InvalidRequest, match="^messages"):
        llm.chat(bad, GREEDY)


def test_a_stream_grows_and_ends_with_the_whole_answer(llm: LLM):
    (whole,) = llm.generate("the engine", GREEDY)
    lengths = []
    for output in llm.stream("the engine", GREEDY):
        lengths.append(len(output.outputs[0].token_ids))
    assert lengths == sorted(lengths) and lengths[-1] == 12 and output.finished
    assert output.outputs[0].token_ids == whole.outputs[0].token_ids
    last = [output for output in llm.stream_chat([{"role": "user", "content": "hi"}], GREEDY)][-1]
    assert last.prompt == "<|user|>hi\n<|assistant|>" and last.finished


def test_leaving_a_stream_aborts_it(llm: LLM):
    for output in llm.stream("the engine", SamplingParams(max_tokens=400, ignore_eos=True)):
        if len(output.outputs[0].token_ids) == 3:
            break
    del output
    check_clean(llm)
    assert len(llm.generate("a", GREEDY)[0].outputs[0].token_ids) == 12


def test_streams_run_side_by_side(llm: LLM):
    """Whoever turns the engine turns it for all; nobody's news gets lost."""
    alone = [llm.generate(prompt, GREEDY)[0].outputs[0].token_ids for prompt in PROMPTS[:3]]
    first, second, third = (llm.stream(prompt, GREEDY) for prompt in PROMPTS[:3])
    next(first), next(second)
    seen = [output.outputs[0].token_ids for output in third][-1]
    assert seen == alone[2]
    assert [output.outputs[0].token_ids for output in first][-1] == alone[0], "the end must be seen, too"
    assert [output.outputs[0].token_ids for output in second][-1] == alone[1]
    check_clean(llm)


def test_leaving_one_stream_leaves_the_other_alone(llm: LLM):
    long = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    left, kept = llm.stream("a", long), llm.stream("the engine", GREEDY)
    next(left), next(kept)
    left.close()
    assert len(list(kept)[-1].outputs[0].token_ids) == 12
    check_clean(llm)


def test_a_refused_stream_fails_by_itself(make_llm: MakeLLM):
    llm = make_llm(num_pages=4, max_model_len=64)
    few = SamplingParams(max_tokens=8, ignore_eos=True)
    good = llm.stream("the engine", few)
    next(good)
    scheduler = llm.engine.loop.scheduler
    scheduler.cache.most_pages = lambda *_: 5  # type: ignore[method-assign]
    with pytest.raises(CapacityError, match="need 5 pages"):
        llm.generate("a", few)
    with pytest.raises(CapacityError, match="need 5 pages"):
        list(llm.stream("a", few))
    del scheduler.cache.most_pages
    assert len(list(good)[-1].outputs[0].token_ids) == 8
    check_clean(llm)


def test_ctrl_c_ends_the_answers_and_not_the_engine(llm: LLM):
    executor = llm.engine.loop.executor
    submit, steps = executor.submit, []

    def interrupted(plan, payloads):
        steps.append(plan.step_id)
        if len(steps) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        submit(plan, payloads)

    executor.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, SamplingParams(max_tokens=300, ignore_eos=True))
    check_clean(llm)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert len(llm.generate("a", GREEDY)[0].outputs[0].token_ids) == 12


def test_a_failed_step_is_told_once_and_for_all(llm: LLM):
    def broken(plan, payloads):
        raise MemoryError("no room")

    llm.engine.loop.executor.submit = broken
    for _ in range(2):
        with pytest.raises(EngineError, match="MemoryError: no room"):
            llm.generate("a", GREEDY)


def test_logits_that_are_no_numbers_end_one_request(llm: LLM):
    forward = llm.engine.loop.executor._forward
    logits = forward.logits

    def poisoned(batch, rows, _out=None, num_logits=None):
        found = logits(batch, rows, None, num_logits).copy()
        found[0] = np.nan
        return found

    forward.logits = poisoned
    outputs = llm.generate(["a", "the engine"], GREEDY)
    assert {output.outputs[0].finish_reason for output in outputs} <= {"error", "length"}
    assert outputs[0].outputs[0].finish_reason == "error" and outputs[0].finished
    check_clean(llm)


def test_priorities_decide_who_goes_first(make_llm: MakeLLM):
    llm = make_llm(scheduling_policy="priority", max_num_seqs=1)
    outputs = llm.generate(["a", "b", "c"], GREEDY, priority=[3, 1, 2])
    started = [output.metrics.first_scheduled_time for output in outputs]
    assert started[1] < started[2] < started[0]


class DeviceApart:
    """The engine's own executor, as if it computed beside the host: a step's result is given out one step later."""

    lateness = 1

    def __init__(self, llm: LLM) -> None:
        self._executor = llm.engine.loop.executor
        self._results: deque[StepResult] = deque()
        self.sent: list[StepPlan] = []

    @property
    def num_in_flight(self) -> int:
        return len(self._results)

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        self._executor.submit(plan, payloads)
        self._results.append(self._executor.collect())
        self.sent.append(plan)

    def collect(self) -> StepResult:
        return self._results.popleft()


def set_apart(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> DeviceApart:
    device = DeviceApart(llm)
    monkeypatch.setattr(llm.engine.loop, "executor", device)
    return device


@pytest.fixture
def device_apart(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> DeviceApart:
    return set_apart(llm, monkeypatch)


def test_a_device_apart_gets_its_first_step_before_all_prompts_are_read(
    llm: LLM, device_apart: DeviceApart, monkeypatch: pytest.MonkeyPatch
):
    length = 16
    per_step = -(-llm.engine.config.max_num_batched_tokens // length)
    count = (STEPS_OPENED + 2) * per_step
    sent_when_read = []
    read = llm._reader.read

    def watched_read(prompt: list[int]) -> tuple[str | None, list[int]]:
        sent_when_read.append(len(device_apart.sent))
        return read(prompt)

    monkeypatch.setattr(llm._reader, "read", watched_read)
    outputs = llm.generate([[5] * length] * count, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
    assert all(len(output.outputs[0].token_ids) == 2 for output in outputs) and len(outputs) == count
    in_time = Counter(sent_when_read)
    assert in_time[0] == per_step and in_time[1] == STEPS_OPENED * per_step and in_time[2] == per_step
    check_clean(llm)


def test_prompts_of_one_prefix_fill_the_steps_after_the_one_that_computes_it(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
):
    llm = make_llm(max_num_seqs=64)
    device = set_apart(llm, monkeypatch)
    budget, page, own = llm.engine.config.max_num_batched_tokens, llm.engine.config.block_size, 2
    assert own * TIMES_OPENED > budget
    prompts = [[5] * page + [6 + number % 20] * own for number in range(3 * TIMES_OPENED)]
    llm.generate(prompts, SamplingParams(max_tokens=1, ignore_eos=True), use_tqdm=False)
    sizes = [int(plan.num_tokens.sum()) for plan in device.sent]
    assert sizes[0] == page + own and sizes[1:4] == [budget] * 3
    check_clean(llm)


def test_a_bad_prompt_late_in_the_list_leaves_nothing_behind(llm: LLM, device_apart: DeviceApart):
    good = [[5] * 16] * (llm.engine.config.max_num_batched_tokens // 16)
    watched = llm.stream("the engine", GREEDY)
    next(watched)
    for bad in ([], [VOCAB_SIZE], ["no id"]):
        with pytest.raises(InvalidRequest, match="^prompt"):
            llm.generate([*good, bad], GREEDY, use_tqdm=False)
    *_, output = watched  # what others wait for is not lost
    assert output.outputs[0].token_ids == llm.generate("the engine", GREEDY)[0].outputs[0].token_ids
    check_clean(llm)


def test_preempt_changes_no_answer(llm: LLM):
    (plain,) = llm.generate("the engine", GREEDY)
    for output in llm.stream("the engine", GREEDY):
        llm.preempt(output.request_id)
    assert output.outputs[0].token_ids == plain.outputs[0].token_ids
    assert llm.engine.loop.scheduler.board.num_preemptions > 3


def test_it_is_a_context_manager(tiny_folder: Path):
    with LLM(tiny_folder) as llm:
        assert llm.generate("a", GREEDY)[0].finished
    llm.close()


def test_metrics_follow_each_other(llm: LLM):
    metrics = llm.generate("a", GREEDY)[0].metrics
    times = [
        metrics.arrival_time,
        metrics.first_scheduled_time,
        metrics.first_token_time,
        metrics.last_token_time,
        metrics.finished_time,
    ]
    assert times == sorted(times)
