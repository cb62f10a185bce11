"""From settings to an engine: what they ask for is what is built, and what cannot be is refused by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from pagoda import LLM, SamplingParams
from pagoda.core.config import EngineConfig
from pagoda.core.errors import CapacityError, InvalidRequest, ModelFileError, ModelNotFound
from pagoda.engine import build, memory_plan
from pagoda.engine.ledger import plan_server
from pagoda.executor.forward import EagerForward, RecordedForward
from tests.engine.conftest import KERNELS, SIZES, VOCAB_SIZE, MakeLLM, save_tokenizer
from tests.fakes.config_folder import write_config
from tests.models.tiny import randomize

TOKEN_BYTES = 3 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, float32
PAGE_BYTES = 16 * TOKEN_BYTES


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("device", "cuda"),
        ("dtype", "float16"),
        ("max_model_len", 0),
        ("max_model_len", "many"),
        ("max_model_len", 513),
        ("kernels", "fast"),
        ("kv_cache_type", "int4"),
        ("num_threads", 0),
        ("num_pages", 0),
        ("num_pages", 1.5),
        ("block_size", 0),
        ("block_size", 2048),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", "half"),
        ("max_num_seqs", 0),
        ("max_num_seqs", "8"),
        ("max_num_seqs", None),
        ("num_pages", True),
        ("seed", "x"),
        ("enable_prefix_caching", "no"),
        ("max_num_batched_tokens", 0),
        ("max_num_batched_tokens", 63),
        ("scheduling_policy", "lifo"),
        ("max_num_sequences", 8),
        ("tensor_parallel_size", 2),
    ],
)
def test_a_bad_setting_is_refused_by_name(tiny_folder: Path, setting: str, value: Any):
    with pytest.raises(InvalidRequest) as error:
        LLM(tiny_folder, **{setting: value})
    assert str(error.value).startswith(setting)
    assert "\n" not in str(error.value)


def test_cuda_without_its_libraries_names_the_extra(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pagoda.executor.cuda.build", None)  # what an import without torch comes to
    for ask in (lambda config: LLM(tiny_folder, device=config.device), lambda config: plan_server(config, 8 << 30)):
        with pytest.raises(
            InvalidRequest, match=r"^device: 'cuda' needs torch and triton .*pip install 'pagoda\[cuda\]'"
        ):
            ask(EngineConfig(model=str(tiny_folder), device="cuda"))


def test_a_misspelt_setting_gets_a_hint(tiny_folder: Path):
    with pytest.raises(InvalidRequest, match="did you mean 'max_model_len'"):
        LLM(tiny_folder, max_model_length=3)


def test_a_model_that_is_not_there(tmp_path: Path):
    with pytest.raises(ModelNotFound):
        LLM(tmp_path / "nothing.gguf")
    with pytest.raises((ModelNotFound, ModelFileError)):
        LLM(tmp_path)


def test_the_defaults_take_the_whole_context_and_pages_for_every_row(make_llm: MakeLLM):
    llm = make_llm(kernels="reference")
    memory = llm.engine.memory
    assert memory.max_model_len == 512 == llm.engine.loop.max_model_len
    assert memory.num_pages == (8 * 512 // 16,)
    assert memory.page_bytes == (PAGE_BYTES,)
    assert memory.cache_bytes == 8 * 512 * TOKEN_BYTES
    num_weights = sum(parameter.numel() for parameter in reference_parameters(llm))
    assert memory.weight_bytes == 4 * num_weights
    assert memory.total_bytes == memory.weight_bytes + memory.cache_bytes + sum(memory.row_lines.values())
    assert [pool.num_pages for pool in llm.engine.loop.scheduler.cache.pools] == [256]


def reference_parameters(llm: LLM) -> list[Any]:
    from transformers import AutoModelForCausalLM

    return list(AutoModelForCausalLM.from_pretrained(llm.engine.config.model).parameters())


def test_a_shorter_context_takes_fewer_pages(make_llm: MakeLLM):
    assert make_llm(max_model_len=40).engine.memory.num_pages == (8 * 3,)
    assert make_llm(max_model_len=40, block_size=8).engine.memory.num_pages == (8 * 5,)


def test_num_pages_is_taken_as_it_is_given(make_llm: MakeLLM):
    memory = make_llm(num_pages=7).engine.memory
    assert memory.num_pages == (7,) and memory.max_model_len == 7 * 16
    assert make_llm(num_pages=100).engine.memory.max_model_len == 512
    llm = make_llm(num_pages=7, max_model_len=112)
    (output,) = llm.generate([[5] * 100], SamplingParams(max_tokens=None, ignore_eos=True))
    assert len(output.outputs[0].token_ids) == 12, "one sequence may fill the whole pool"


def test_too_few_pages_for_the_context_are_refused_with_the_numbers(make_llm: MakeLLM):
    with pytest.raises(
        CapacityError, match="num_pages=6 cannot hold one sequence of max_model_len=112.* 7 pages of 16"
    ):
        make_llm(num_pages=6, max_model_len=112)


def beside_pages(make_llm: MakeLLM, **settings: Any) -> int:
    """What the engine takes beside its pages."""
    memory = make_llm(**settings).engine.memory
    return memory.total_bytes - memory.cache_bytes


def with_memory(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: num_bytes)


def test_the_context_shrinks_to_what_the_memory_holds(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch):
    with_memory(monkeypatch, 2 * (beside_pages(make_llm, max_model_len=160) + 10 * PAGE_BYTES + 5))
    llm = make_llm()
    assert llm.engine.memory.max_model_len == 160
    assert llm.engine.memory.num_pages == (10,)
    assert llm.engine.memory.total_bytes <= llm.engine.memory.budget_bytes
    assert len(llm.generate([[5] * 100], SamplingParams(max_tokens=60, ignore_eos=True))[0].outputs[0].token_ids) == 60
    with pytest.raises(InvalidRequest, match="max_model_len is 160"):
        llm.generate([[5] * 160])
    more = make_llm(gpu_memory_utilization=1.0)
    assert more.engine.memory.max_model_len == 512


def test_pages_between_one_row_and_all_are_shared_out(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch):
    with_memory(monkeypatch, 2 * (beside_pages(make_llm) + 100 * PAGE_BYTES))
    memory = make_llm().engine.memory
    assert memory.max_model_len == 512 and 32 <= memory.num_pages[0] <= 100


def test_a_context_that_was_asked_for_is_never_cut(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch):
    weights = make_llm().engine.memory.weight_bytes
    with_memory(monkeypatch, 2 * (beside_pages(make_llm) + 10 * PAGE_BYTES))
    with pytest.raises(CapacityError, match="one sequence of 400 tokens needs .* max_model_len to .* raise gpu_mem"):
        make_llm(max_model_len=400)
    with_memory(monkeypatch, weights)
    with pytest.raises(CapacityError):
        make_llm()


@pytest.fixture(scope="module")
def window_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma 3 whose window is shorter than its context."""
    folder = tmp_path_factory.mktemp("tiny-gemma")
    sizes = SIZES | {"max_position_embeddings": 256}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    config = Gemma3TextConfig(**sizes, sliding_window=24, layer_types=layers, query_pre_attn_scalar=16)
    randomize(Gemma3ForCausalLM(config), seed=3).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def test_a_window_takes_no_more_pages_than_it_can_hold(window_folder: Path):
    with LLM(window_folder, max_num_seqs=4, max_num_batched_tokens=16) as llm:
        groups = llm.engine.model.cache_groups()
        pages = dict(zip((group.window for group in groups), llm.engine.memory.num_pages, strict=True))
        assert pages == {0: 4 * 16, 24: 4 * (-(-(24 + 16) // 16) + 1)}
        (output,) = llm.generate([[5] * 30], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
        assert len(output.outputs[0].token_ids) == 226


def test_few_pages_with_a_window_still_fit_one_sequence(window_folder: Path):
    """A short context lies in the window's pages as it lies in the others'."""
    with LLM(window_folder, max_num_seqs=4, max_num_batched_tokens=64, num_pages=4) as llm:
        assert llm.engine.memory.max_model_len == 64 and llm.engine.memory.num_pages == (4, 4)
        sampling = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
        outputs = llm.generate([[5] * 20, [6] * 50], sampling)
        assert [len(output.outputs[0].token_ids) for output in outputs] == [44, 14]


def test_settings_reach_the_scheduler_and_the_cache(make_llm: MakeLLM):
    llm = make_llm(enable_prefix_caching=False, scheduling_policy="priority", block_size=32, max_num_batched_tokens=99)
    scheduler = llm.engine.loop.scheduler
    assert not scheduler.cache.enable_prefix_caching
    assert scheduler.cache.page_size == 32
    assert (scheduler.config.policy, scheduler.config.max_num_batched_tokens) == ("priority", 99)
    assert llm.engine.config == EngineConfig(
        model=llm.engine.config.model,
        device="cpu",
        enable_prefix_caching=False,
        scheduling_policy="priority",
        block_size=32,
        max_num_seqs=8,
        max_num_batched_tokens=99,
        num_threads=1,
    )


def test_a_cpu_need_not_be_asked_to_be_deterministic(make_llm: MakeLLM):
    sampling = SamplingParams(temperature=0, max_tokens=6, logprobs=2)
    answers = [make_llm(deterministic=asked).generate([[5] * 20, [6, 7]], sampling) for asked in (False, True)]
    plain, deterministic = ([output.outputs[0] for output in outputs] for outputs in answers)
    assert [one.token_ids for one in plain] == [one.token_ids for one in deterministic]
    assert [one.logprobs for one in plain] == [one.logprobs for one in deterministic]


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_kernels_can_be_chosen(make_llm: MakeLLM, kernels: str):
    llm = make_llm(kernels=kernels)
    recorded = {"native": RecordedForward, "reference": EagerForward}[kernels]
    assert type(llm.engine.loop.executor._forward) is recorded


def test_native_kernels_that_cannot_be_used_are_refused_or_replaced(make_llm: MakeLLM):
    with pytest.raises(InvalidRequest, match="kernels: the native kernels cannot be used: "):
        make_llm(kernels="native", block_size=8)
    assert type(make_llm(block_size=8).engine.loop.executor._forward) is EagerForward


def test_progress_is_told_while_weights_are_read(tiny_folder: Path):
    seen: list[tuple[int, int]] = []
    with LLM(tiny_folder, progress=lambda done, total: seen.append((done, total))):
        num_tensors = seen[0][1]
        assert seen[:num_tensors] == [(number, num_tensors) for number in range(1, num_tensors + 1)]
        packed = seen[num_tensors:]
        assert packed == [(number, len(packed)) for number in range(1, len(packed) + 1)]


def test_a_failure_on_the_way_closes_the_file(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch):
    opened = []
    real = build.open_checkpoint

    def opening(path: Path) -> Any:
        opened.append(real(path))
        monkeypatch.setattr(type(opened[-1]), "close", lambda self: opened.append("closed"))
        return opened[0]

    monkeypatch.setattr(build, "open_checkpoint", opening)
    with pytest.raises(CapacityError):
        LLM(tiny_folder, num_pages=1, max_model_len=100)
    assert opened[1:] == ["closed"]


def test_end_tokens_beyond_the_vocabulary_are_left_out(make_llm: MakeLLM):
    llm = make_llm()
    assert llm.get_tokenizer().eos_ids
    assert all(end < VOCAB_SIZE for end in llm.engine.loop._answers._end_token_ids)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_configuration_alone_is_a_model_of_random_weights(tmp_path: Path, kernels: str):
    folder = write_config(tmp_path)
    settings = {"load_format": "dummy", "kernels": kernels, "num_threads": 1, "max_num_seqs": 2}
    with LLM(folder, **settings) as llm, LLM(folder, **settings) as other:
        params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
        [answer] = llm.generate(["hello"], params, use_tqdm=False)
        assert len(answer.outputs[0].token_ids) == 5 and answer.prompt_token_ids == list(b"hello")
        [again] = other.generate(["hello"], params, use_tqdm=False)
        assert again.outputs[0].token_ids == answer.outputs[0].token_ids, "random, and yet always the same"
        plan, taken = llm.engine.memory.lines, llm.engine.loop.executor.allocated_bytes()
        assert plan["weights"] == taken["weights"]
