from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pagoda.cli.settings import field_texts
from pagoda.core.config import EngineConfig, SchedulerConfig, device_defaults
from pagoda.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", "fair"),
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("max_preemptions", 0),
        ("num_draft_tokens", -1),
        ("max_num_batched_tokens", 63),
    ],
)
def test_a_scheduler_setting_out_of_range_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: ") as caught:
        SchedulerConfig(**{field: value})
    assert caught.value.field == field


def test_a_step_must_have_room_for_every_row_and_its_drafts() -> None:
    SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=64)
    SchedulerConfig(max_num_seqs=16, num_draft_tokens=3, max_num_batched_tokens=64)
    with pytest.raises(InvalidRequest, match="give at least 68 or lower max_num_seqs"):
        SchedulerConfig(max_num_seqs=17, num_draft_tokens=3, max_num_batched_tokens=64)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", "abacus"),
        ("dtype", "int1"),
        ("max_model_len", 0),
        ("num_pages", -5),
        ("num_pages", 1.5),
        ("block_size", 0),
        ("block_size", 2000),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", float("nan")),
    ],
)
def test_an_engine_setting_out_of_range_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: "):
        EngineConfig(model="m", **{field: value})


def test_settings_never_change() -> None:
    with pytest.raises(AttributeError):
        SchedulerConfig().max_num_seqs = 3  # type: ignore[misc]


def test_unknown_settings_are_not_swallowed() -> None:
    with pytest.raises(TypeError):
        SchedulerConfig(max_seqs=3)  # type: ignore[call-arg]


def test_settings_survive_a_file() -> None:
    config = SchedulerConfig(policy="priority", max_num_seqs=3, max_num_batched_tokens=77)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=SchedulerConfig) == config


def test_bad_settings_in_a_file_are_refused() -> None:
    data = msgspec.msgpack.encode({"max_num_seqs": 0})
    with pytest.raises((msgspec.ValidationError, InvalidRequest), match="max_num_seqs"):
        msgspec.msgpack.decode(data, type=SchedulerConfig)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_every_device_can_be_deterministic(device: str) -> None:
    assert EngineConfig(model="m", device=device, deterministic=True).deterministic  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="^deterministic: "):
        EngineConfig(model="m", device=device, deterministic="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [("quantization", "fp8"), ("quantization", "int4"), ("dtype", "bfloat16"), ("kv_cache_type", "fp8")],
)
def test_what_only_a_gpu_can_do_is_refused_elsewhere(field: str, value: str) -> None:
    EngineConfig(model="m", device="cuda", **{field: value})
    for device in ("auto", "cpu"):
        with pytest.raises(InvalidRequest, match=f"{field}.*cuda"):
            EngineConfig(model="m", device=device, **{field: value})


def test_a_device_has_defaults_of_its_own_and_the_texts_say_so() -> None:
    assert device_defaults("cpu") == device_defaults("auto") == device_defaults(None) == {}
    config = EngineConfig(model="m", device="cuda", **device_defaults("cuda"))
    assert (config.max_num_batched_tokens, config.block_size, config.gpu_memory_utilization) == (8192, 64, 0.9)
    texts = field_texts(EngineConfig)
    for name, value in device_defaults("cuda").items():
        assert f"on CUDA {'as many as memory serves' if value is None else value}" in texts[name]


def test_only_a_gpu_decides_how_many_rows() -> None:
    assert EngineConfig(model="m", device="cuda", max_num_seqs=None).max_num_seqs is None
    with pytest.raises(InvalidRequest, match=r"^max_num_seqs: must be a whole number of at least 1, not None"):
        EngineConfig(model="m", max_num_seqs=None)


@pytest.mark.parametrize("kind", ["f32", "f16", "int8"])
def test_a_cache_type_of_the_cpu_is_refused_on_a_gpu(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="is for a CPU; on CUDA give 'auto' or 'fp8'"):
        EngineConfig(model="m", device="cuda", kv_cache_type=kind)
    assert EngineConfig(model="m", device="cuda", kv_cache_type="fp8").kv_cache_type == "fp8"


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_narrow_weights_have_no_deterministic_form(bits: Any) -> None:
    with pytest.raises(InvalidRequest, match="has no deterministic form"):
        EngineConfig(model="m", device="cuda", quantization=bits, deterministic=True)
    assert EngineConfig(model="m", device="cuda", quantization=bits).quantization == bits
