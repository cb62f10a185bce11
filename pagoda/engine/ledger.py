"""What a server takes from the machine, process by process, worked out from headers alone: nothing is loaded for it.

The engine's own lines are those it decides by (`plan_for`), to the byte. The rest is what interpreters, libraries and
tokenizers were measured to take (`benchmarks/memory_plan.py`), and is marked as an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from pagoda.core.cache import KVCacheType
from pagoda.core.config import EngineConfig
from pagoda.core.errors import CapacityError, InvalidRequest
from pagoda.engine.build import (
    bringing_torch,
    check_steps,
    choose_kernels,
    fixed_costs,
    kv_cache_type,
    make_model,
    open_model,
    path_of,
)
from pagoda.engine.memory_plan import device_sizes, plan_for, plan_on_device
from pagoda.executor.memory import MemoryPlan, available_bytes
from pagoda.kernels.cpu import CpuKernels
from pagoda.models import Model

if TYPE_CHECKING:
    from pagoda.executor.cuda.build import CudaBuilder

MEBIBYTE = 1 << 20
# Measured on Linux with Python 3.11 and NumPy 2.4.
ENGINE_BYTES = 48 * MEBIBYTE  # interpreter, NumPy, our own modules, the records of the scheduler
TORCH_BYTES = 260 * MEBIBYTE  # torch and Triton besides, without what a driver maps
HTTP_BYTES = 58 * MEBIBYTE  # the same with a web server instead of kernels
SUPERVISOR_BYTES = 18 * MEBIBYTE  # Python and its settings
TOKENIZER_BYTES, TOKEN_BYTES = 21 * MEBIBYTE, 180
PAGE_RECORD_BYTES = 560  # its name, its place in the prefix tree, its counts
CONTEXTS = (512, 2048, 8192, 32768, 131072)
KV_CACHE_TYPES: tuple[KVCacheType, ...] = ("f32", "f16", "int8")
CUDA_KV_CACHE_TYPES = ("auto", "fp8")

Process = Literal["device", "engine", "http", "supervisor"]
"""Who takes it; `device` is the engine process as well, in a GPU's memory."""


class LedgerLine(msgspec.Struct, frozen=True, kw_only=True):
    process: Process
    name: str
    num_bytes: int
    meaning: str
    is_estimate: bool = False


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache would hold with keys and values of one type."""

    kv_cache_type: KVCacheType
    bytes_per_token: int
    max_model_len: int
    num_tokens: int
    """In the pages of all rows together."""
    streams: dict[int, int]
    """By context: sequences of that length that run at once."""
    problem: str = ""
    """Why it would not fit at all."""


class ServerLedger(msgspec.Struct, frozen=True, kw_only=True):
    config: EngineConfig
    kv_cache_type: KVCacheType
    compute: str
    model_context: int
    memory: MemoryPlan
    available_bytes: int
    lines: tuple[LedgerLine, ...]
    capacities: tuple[Capacity, ...]

    @property
    def margin_bytes(self) -> int:
        """Of what may be used, what is left over."""
        return self.memory.budget_bytes - self.memory.total_bytes

    @property
    def process_bytes(self) -> dict[str, int]:
        return process_totals(self.lines)


def process_totals(lines: Iterable[LedgerLine]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for line in lines:
        totals[line.process] += line.num_bytes
    return dict(totals)


def plan_server(config: EngineConfig, gpu_bytes: int | None = None) -> ServerLedger:
    """`gpu_bytes` are free on the device that is planned for; None: what this machine's has."""
    check_steps(config)  # a bad setting is refused first
    if config.device == "cuda":
        return plan_device_server(config, gpu_bytes)
    if gpu_bytes is not None:
        raise InvalidRequest("gpu_memory", "is for a plan with device='cuda'")
    with open_model(config, path_of(config)) as checkpoint:
        model = make_model(config, checkpoint)
        kernels = choose_kernels(config, model)
        cache_type = kv_cache_type(config, model, kernels)
        plan = partial(_plan, config, model, kernels)
        memory = plan(cache_type)
        ledger = ServerLedger(
            config=config,
            kv_cache_type=cache_type,
            compute="numpy" if kernels is None else f"{kernels.compute} ({kernels.instruction_set})",
            model_context=model.config.max_positions,
            memory=memory,
            available_bytes=available_bytes(),
            lines=tuple(ledger_lines(config, model, memory, cache_type)),
            capacities=tuple(capacity(config, model, partial(plan, kind), kind) for kind in KV_CACHE_TYPES),
        )
        # Before the files are closed nothing may look into them any more.
        del model, kernels, plan
    return ledger


def plan_device_server(config: EngineConfig, gpu_bytes: int | None) -> ServerLedger:
    with bringing_torch():
        from pagoda.executor.cuda.build import CudaBuilder, free_device_bytes

    free_bytes = free_device_bytes() if gpu_bytes is None else gpu_bytes
    with open_model(config, path_of(config)) as checkpoint:
        model = make_model(config, checkpoint)
        settings = (config.dtype, config.quantization, "meta", config.deterministic)
        builder = CudaBuilder(model, *settings, config.kv_cache_type)
        config, memory = plan_on_device(config, model, builder, free_bytes)
        others = [CudaBuilder(model, *settings, kind) for kind in CUDA_KV_CACHE_TYPES]
        plans = {other.kv_cache_type: partial(_device_plan, config, model, other, free_bytes) for other in others}
        pinned = builder.host_bytes(device_sizes(config), memory.max_model_len)
        cache_type = builder.kv_cache_type
        ledger = ServerLedger(
            config=config,
            kv_cache_type=cache_type,
            compute=builder.compute,
            model_context=model.config.max_positions,
            memory=memory,
            available_bytes=free_bytes,
            lines=tuple(ledger_lines(config, model, memory, cache_type, pinned)),
            capacities=tuple(capacity(config, model, plan, kind) for kind, plan in plans.items()),
        )
        del model, builder, others, plans
    return ledger


def ledger_lines(
    config: EngineConfig, model: Model, memory: MemoryPlan, cache_type: KVCacheType, pinned_bytes: int = 0
) -> Iterator[LedgerLine]:
    num_pages = sum(memory.num_pages)
    per_token = bytes_per_token(memory, config)
    rows = f"{config.num_rows} rows of {memory.max_model_len} tokens"
    meanings = {
        "weights": f"{len(model.weights())} tensors, as they are computed with",
        "pages": f"{num_pages} pages of {config.block_size} tokens, {per_token} bytes a token ({cache_type})",
        "workspace": f"a step of {config.max_num_batched_tokens} tokens",
        "logits": f"{config.num_rows} rows of {model.config.vocab_size}",
        "rows": rows,
        "attention": f"what the pieces of {config.num_rows} contexts leave for one another",
        "positions": "cosines and sines",
        "draws": f"candidates, rules and scores of {config.num_rows} rows",
        "sharing": "which rows begin alike",
        "libraries": "cuBLAS, graphs, code, and what a step takes and gives back",
    }
    on_device = config.device == "cuda"
    for name, num_bytes in memory.lines.items():
        where: Process = "device" if on_device else "engine"
        is_estimate = name == "libraries"
        yield LedgerLine(process=where, name=name, num_bytes=num_bytes, meaning=meanings[name], is_estimate=is_estimate)
    if on_device:
        yield LedgerLine(process="engine", name="pinned", num_bytes=pinned_bytes, meaning="on the way to the device")
    tokenizer = TOKENIZER_BYTES + TOKEN_BYTES * model.config.vocab_size
    interpreter = ENGINE_BYTES + (TORCH_BYTES if on_device else 0)
    estimates: tuple[tuple[Process, str, int, str], ...] = (
        ("engine", "page records", PAGE_RECORD_BYTES * num_pages, "who holds which page, and its prefix"),
        ("engine", "tokenizer", tokenizer, f"{model.config.vocab_size} tokens"),
        ("engine", "interpreter", interpreter, "Python, libraries, modules"),
        ("http", "tokenizer", tokenizer, f"{model.config.vocab_size} tokens"),
        ("http", "interpreter", HTTP_BYTES, "Python, libraries, web server"),
        ("supervisor", "interpreter", SUPERVISOR_BYTES, "Python"),
    )
    for process, name, num_bytes, meaning in estimates:
        yield LedgerLine(process=process, name=name, num_bytes=num_bytes, meaning=meaning, is_estimate=True)


def bytes_per_token(memory: MemoryPlan, config: EngineConfig) -> int:
    return sum(memory.page_bytes) // config.block_size


def _plan(config: EngineConfig, model: Model, kernels: CpuKernels | None, kind: KVCacheType) -> MemoryPlan:
    return plan_for(config, model, fixed_costs(config, model, kernels, kind), kind)


def _device_plan(config: EngineConfig, model: Model, builder: CudaBuilder, free_bytes: int) -> MemoryPlan:
    return plan_on_device(config, model, builder, free_bytes)[1]


def capacity(config: EngineConfig, model: Model, plan: Callable[[], MemoryPlan], kind: KVCacheType) -> Capacity:
    """The same decision, as it would come out with another type."""
    context = model.config.max_positions
    per_token = sum(group.bytes_per_token(kind) for group in model.cache_groups())
    try:
        memory = plan()
    except CapacityError as error:
        return Capacity(
            kv_cache_type=kind, bytes_per_token=per_token, max_model_len=0, num_tokens=0, streams={}, problem=str(error)
        )
    lengths = sorted({length for length in (*CONTEXTS, memory.max_model_len) if length <= memory.max_model_len})
    return Capacity(
        kv_cache_type=kind,
        bytes_per_token=per_token,
        max_model_len=memory.max_model_len,
        num_tokens=min(memory.num_pages) * config.block_size,
        streams={length: num_streams(config, model, memory, length) for length in lengths if length <= context},
    )


def num_streams(config: EngineConfig, model: Model, memory: MemoryPlan, length: int) -> int:
    step = config.max_num_batched_tokens
    each = (group.most_pages(length, step, config.block_size) for group in model.cache_groups())
    most = min(count // needed for count, needed in zip(memory.num_pages, each, strict=True))
    return min(most, config.num_rows)
