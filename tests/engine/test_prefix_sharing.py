"""A prompt that many requests begin with is computed once."""

from __future__ import annotations

from pagoda import SamplingParams
from tests.engine.conftest import MakeLLM


def test_questions_behind_a_long_prompt_compute_a_tenth(make_llm: MakeLLM):
    system = [4 + place % 300 for place in range(384)]
    prompts = [[*system, 10 + number, 50 + number] for number in range(32)]
    sampling = SamplingParams(temperature=0, max_tokens=2)
    computed, answers = [], []
    for caching in (True, False):
        llm = make_llm(enable_prefix_caching=caching)
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        answers.append([output.outputs[0].token_ids for output in outputs])
        computed.append(llm.engine.loop.counters.num_computed_tokens - len(prompts))
        assert [output.num_cached_tokens for output in outputs] == [0] + [384 * caching] * 31
    assert answers[0] == answers[1]
    assert computed[1] == 32 * 386
    assert computed[0] == 386 + 31 * 2 < 0.1 * computed[1]


def test_a_conversation_goes_on_from_its_own_answer(make_llm: MakeLLM):
    """The pages of an answer serve the next turn, which begins with it."""
    llm = make_llm()
    first = llm.generate([list(range(10, 50))], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True))[0]
    text = first.prompt_token_ids + first.outputs[0].token_ids
    second = llm.generate([[*text, 9]], SamplingParams(temperature=0, max_tokens=2))[0]
    assert second.num_cached_tokens == 48, "the last drawn token was never computed, so its page is not full"


def test_the_cache_can_be_emptied_and_the_log_still_replays(make_llm: MakeLLM, tmp_path):
    from pagoda.scheduler.log import load_log
    from pagoda.scheduler.replay import replay

    llm = make_llm()
    prompt = [list(range(10, 60))]
    cached = []
    for _ in range(2):
        for _ in range(2):
            cached.append(llm.generate(prompt, SamplingParams(temperature=0, max_tokens=2))[0].num_cached_tokens)
        llm.reset_prefix_cache()
    llm.generate(prompt, SamplingParams(temperature=0, max_tokens=2))
    assert cached == [0, 48, 0, 48]
    llm.save_decision_log(tmp_path / "log")
    report = replay(load_log(tmp_path / "log"))
    assert report.first_difference == "" and report.num_plans > 0
