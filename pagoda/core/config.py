"""Settings, one frozen record per concept. Each is checked where it is made and never changed afterwards."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pagoda.core.errors import InvalidRequest


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set. The names are vLLM's where the meaning is the same."""

    model: str
    """A model's name, a .gguf file or a Hugging Face folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on a GPU where there is one that serves, else on the CPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What to compute in; auto: float32 on a CPU, on CUDA what the weights are stored in."""
    quantization: Literal["none", "fp8", "int8", "int4"] = "none"
    """What a GPU makes of weights when it loads them; fp8: of inputs too; int8 and int4 are for few streams."""
    load_format: Literal["auto", "dummy"] = "auto"
    """Where weights come from; dummy: random numbers in the shapes of config.json, to measure with."""
    generation_config: Literal["auto", "none"] = "auto"
    """How requests draw that say nothing of it; auto: as the model's files recommend; none: at temperature 1."""
    kernels: Literal["auto", "native", "reference"] = "auto"
    """What computes on a CPU: the native kernels, or plain NumPy; auto: native where they were built."""
    compute: Literal["auto", "f32", "int8"] = "auto"
    """What a CPU multiplies quantized weights in; int8 keeps outliers in f32; auto: int8 if the kernels are native."""
    num_threads: int | None = None
    """Threads of the native kernels; None: one for each core."""
    deterministic: bool = False
    """The same bits whoever shares the batch on CUDA too, where it costs speed; on a CPU they are always the same."""
    seed: int | None = None
    """Makes requests without a seed of their own repeatable, by their order of arrival."""
    max_model_len: int | None = None
    """Longest prompt and answer together; None: the model's context, or as much of it as memory allows."""
    max_num_seqs: int | None = 64
    """Sequences that run at once; on CUDA as many as memory serves, up to 1024."""
    max_num_batched_tokens: int = 512
    """Tokens computed in one step; on CUDA 8192."""
    enable_prefix_caching: bool = True
    """Keep computed pages for later requests that begin with the same tokens."""
    block_size: int = 16
    """Tokens in a page of the KV cache; on CUDA 64."""
    kv_cache_type: Literal["auto", "f32", "f16", "int8", "fp8"] = "auto"
    """How keys and values are kept; auto: f16 with compute int8, else f32; on CUDA as computed; fp8 needs CUDA."""
    gpu_memory_utilization: float = 0.5
    """Share of the device's free memory that weights and cache may take, main memory on a CPU; on CUDA 0.9."""
    num_pages: int | None = None
    """Pages of the KV cache; None: as many as the memory allows and the rows can use."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """Who goes first."""

    def __post_init__(self) -> None:
        named: dict[str, tuple[object, ...]] = {
            "device": ("auto", "cpu", "cuda"),
            "dtype": ("auto", "float32", "bfloat16"),
            "quantization": ("none", "fp8", "int8", "int4"),
            "load_format": ("auto", "dummy"),
            "generation_config": ("auto", "none"),
            "kernels": ("auto", "native", "reference"),
            "compute": ("auto", "f32", "int8"),
            "kv_cache_type": ("auto", "f32", "f16", "int8", "fp8"),
            "scheduling_policy": ("fcfs", "priority"),
            "enable_prefix_caching": (True, False),
            "deterministic": (True, False),
        }
        for field, choices in named.items():
            if getattr(self, field) not in choices:
                known = ", ".join(repr(choice) for choice in choices)
                raise InvalidRequest(field, f"{getattr(self, field)!r} is not supported; it is one of {known}")
        if self.device != "cuda":
            if self.quantization != "none":
                raise InvalidRequest("quantization", f"{self.quantization!r} needs device='cuda'")
            if self.dtype == "bfloat16":
                raise InvalidRequest("dtype", "'bfloat16' needs device='cuda'; a CPU computes in float32")
            if self.kv_cache_type == "fp8":
                raise InvalidRequest("kv_cache_type", "'fp8' needs device='cuda'; on a CPU int8 is as small")
        elif self.kv_cache_type not in ("auto", "fp8"):
            raise InvalidRequest("kv_cache_type", f"{self.kv_cache_type!r} is for a CPU; on CUDA give 'auto' or 'fp8'")
        elif self.deterministic and self.quantization in ("int8", "int4"):
            known = "give 'none' or 'fp8', or leave deterministic out"
            raise InvalidRequest("quantization", f"{self.quantization!r} has no deterministic form; {known}")
        optional = {"max_model_len", "num_pages", "num_threads", *(["max_num_seqs"] if self.device == "cuda" else [])}
        for field in sorted({"max_num_seqs", "max_num_batched_tokens"} | optional):
            value = getattr(self, field)
            if not (value is None and field in optional) and not (_is_whole(value) and value >= 1):
                raise InvalidRequest(field, f"must be a whole number of at least 1, not {value!r}")
        if not _is_whole(self.block_size) or not 1 <= self.block_size <= 1024:
            raise InvalidRequest("block_size", f"must be a whole number from 1 to 1024, not {self.block_size!r}")
        if self.seed is not None and not _is_whole(self.seed):
            raise InvalidRequest("seed", f"must be a whole number or None, not {self.seed!r}")
        share = self.gpu_memory_utilization
        if not isinstance(share, int | float) or not 0.0 < share <= 1.0:
            raise InvalidRequest("gpu_memory_utilization", f"must lie above 0 and not above 1, not {share!r}")

    @property
    def num_rows(self) -> int:
        """`max_num_seqs`, where it is decided."""
        assert self.max_num_seqs is not None, "it is for the memory plan to say how many"
        return self.max_num_seqs


# What takes the place of the record's own defaults where nothing was said.
CUDA_DEFAULTS: dict[str, Any] = {
    "max_num_seqs": None,
    "max_num_batched_tokens": 8192,
    "block_size": 64,
    "gpu_memory_utilization": 0.9,
}


def device_defaults(device: object) -> dict[str, Any]:
    """The device's own defaults, where they differ from those of `EngineConfig`."""
    return dict(CUDA_DEFAULTS) if device == "cuda" else {}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    policy: Literal["fcfs", "priority"] = "fcfs"
    """Who goes first: `fcfs` by arrival, `priority` by the request's priority and then by arrival."""
    max_num_seqs: int = 64
    """Sequences that run at once; each has a row of its own."""
    max_num_batched_tokens: int = 512
    """Tokens computed in one step, over all rows. Longer prompts are cut into chunks."""
    max_preemptions: int = 3
    """A request pushed back this often next starts only with every page it can ever need."""
    num_draft_tokens: int = 0
    """Guesses verified with each decoded token; the executor says how many it can make."""

    def __post_init__(self) -> None:
        if self.policy not in ("fcfs", "priority"):
            raise InvalidRequest("policy", f"{self.policy!r} is not one of 'fcfs', 'priority'")
        for field in ("max_num_seqs", "max_num_batched_tokens", "max_preemptions"):
            if getattr(self, field) < 1:
                raise InvalidRequest(field, f"must be at least 1, not {getattr(self, field)}")
        if self.num_draft_tokens < 0:
            raise InvalidRequest("num_draft_tokens", f"must not be negative, not {self.num_draft_tokens}")
        least = self.max_num_seqs * (1 + self.num_draft_tokens)
        if self.max_num_batched_tokens < least:
            raise InvalidRequest(
                "max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is less than one step of {self.max_num_seqs} rows needs; "
                f"give at least {least} or lower max_num_seqs",
            )
