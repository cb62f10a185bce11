"""From settings to a working engine: the one place where the floors are put together."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from pagoda.core.cache import KVCacheType
from pagoda.core.config import EngineConfig, SchedulerConfig
from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.decoding import SeedSource
from pagoda.engine.background import Background
from pagoda.engine.device import INSTALL
from pagoda.engine.fingerprint import Backend
from pagoda.engine.loop import EngineLoop
from pagoda.engine.memory_plan import device_sizes, plan_for, plan_on_device
from pagoda.engine.prompts import PromptReader
from pagoda.executor import Executor, FixedCosts, LocalExecutor, MemoryPlan, PageStore, WorkerRows
from pagoda.executor.forward import EagerForward, RecordedForward, record
from pagoda.executor.memory import FLOAT32_BYTES
from pagoda.kernels.base import FLOAT_FORMATS, RANDOM_FORMAT
from pagoda.kernels.cpu import CpuKernels, why_unavailable
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kv_cache import KVCacheManager
from pagoda.models import Model, load_model, random_model
from pagoda.scheduler import DecisionLog, Scheduler
from pagoda.text import Tokenizer
from pagoda.text.loading import load_or_make_tokenizer, load_tokenizer
from pagoda.weights.checkpoint import Checkpoint, open_checkpoint, open_configuration
from pagoda.weights.sampling_defaults import read_sampling_defaults
from pagoda.weights.store import resolve_model

Progress = Callable[[int, int], None]
"""Hears how many tensors have been read, and how many there are; then the same of weights that are packed."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engine:
    """A loop ready to turn, and what its callers need beside it."""

    config: EngineConfig
    loop: EngineLoop
    tokenizer: Tokenizer
    model: Model
    memory: MemoryPlan
    checkpoint: Checkpoint
    kv_cache_type: KVCacheType
    backend: Backend
    sampling_defaults: SamplingDefaults

    def prompt_reader(self) -> PromptReader:
        """One for each caller: it counts the requests it names."""
        return PromptReader(self.tokenizer, self.loop.max_model_len, default_sampling=self.sampling_defaults.params())

    def close(self) -> None:
        self.loop.executor.close()
        self.checkpoint.close()


def build_engine(config: EngineConfig, progress: Progress | None = None) -> Engine:
    check_steps(config)  # first, so that a bad setting is refused before anything is loaded
    path = path_of(config)
    if config.device == "cuda":
        return build_cuda_engine(config, path, progress)
    checkpoint = open_model(config, path)
    try:
        defaults = sampling_defaults(config, checkpoint)
        model = make_model(config, checkpoint, progress)
        kernels = choose_kernels(config, model)
        cache_type = kv_cache_type(config, model, kernels)
        memory = plan_for(config, model, fixed_costs(config, model, kernels, cache_type), cache_type)
        with Background(partial(prepare_weights, model, kernels, progress)):
            tokenizer = make_tokenizer(config, checkpoint, path)
        end_token_ids = ends_of(tokenizer, model)
        scheduler = make_scheduler(config, model, memory)
        pages = make_pages(config, model, kernels, memory, cache_type)
        executor = make_executor(config, model, kernels, pages, memory.max_model_len, end_token_ids)
    except BaseException:
        checkpoint.close()
        raise
    loop = make_loop(config, scheduler, executor, path, model, memory, end_token_ids)
    backend = cpu_backend(config, kernels)
    return Engine(config, loop, tokenizer, model, memory, checkpoint, cache_type, backend, defaults)


def build_cuda_engine(config: EngineConfig, path: Path, progress: Progress | None) -> Engine:
    with bringing_torch():
        from pagoda.executor.cuda.build import CudaBuilder

    checkpoint = open_model(config, path)
    try:
        defaults = sampling_defaults(config, checkpoint)
        model = make_model(config, checkpoint, progress)
        builder = CudaBuilder(
            model,
            config.dtype,
            config.quantization,
            deterministic=config.deterministic,
            kv_cache_type=config.kv_cache_type,
        )
        config, memory = plan_on_device(config, model, builder, builder.free_bytes)
        with Background(partial(builder.load, memory, device_sizes(config))):
            tokenizer = make_tokenizer(config, checkpoint, path)
        end_token_ids = ends_of(tokenizer, model)
        executor = builder.make_executor(end_token_ids)
        scheduler = make_scheduler(config, model, memory)
    except BaseException:
        checkpoint.close()
        raise
    loop = make_loop(config, scheduler, executor, path, model, memory, end_token_ids)
    backend = Backend(*builder.names())
    return Engine(config, loop, tokenizer, model, memory, checkpoint, builder.kv_cache_type, backend, defaults)


@contextmanager
def bringing_torch() -> Iterator[None]:
    """Around imports that nothing on a CPU needs."""
    try:
        yield
    except ImportError as error:
        raise InvalidRequest("device", f"'cuda' needs torch and triton ({error}); {INSTALL}") from None


def path_of(config: EngineConfig) -> Path:
    return Path(config.model) if config.load_format == "dummy" else resolve_model(config.model)


def open_model(config: EngineConfig, path: Path) -> Checkpoint:
    return open_configuration(path) if config.load_format == "dummy" else open_checkpoint(path)


def sampling_defaults(config: EngineConfig, checkpoint: Checkpoint) -> SamplingDefaults:
    return read_sampling_defaults(checkpoint) if config.generation_config == "auto" else SamplingDefaults()


def make_model(config: EngineConfig, checkpoint: Checkpoint, progress: Progress | None = None) -> Model:
    if config.load_format != "dummy":
        return load_model(checkpoint, progress)
    # A GPU makes up its numbers itself.
    return random_model(checkpoint, RANDOM_FORMAT if config.device == "cuda" else "BF16")


def make_tokenizer(config: EngineConfig, checkpoint: Checkpoint, path: Path) -> Tokenizer:
    load = load_or_make_tokenizer if config.load_format == "dummy" else load_tokenizer
    return load(checkpoint, path)


def ends_of(tokenizer: Tokenizer, model: Model) -> list[int]:
    """The tokens that end an answer, as far as the model has them."""
    return sorted(end for end in tokenizer.eos_ids if end < model.config.vocab_size)


def make_loop(
    config: EngineConfig,
    scheduler: Scheduler,
    executor: Executor,
    path: Path,
    model: Model,
    memory: MemoryPlan,
    end_token_ids: list[int],
) -> EngineLoop:
    return EngineLoop(
        scheduler,
        executor,
        model_name=str(path.resolve()),
        vocab_size=model.config.vocab_size,
        max_model_len=memory.max_model_len,
        end_token_ids=end_token_ids,
        seeds=SeedSource(config.seed),
    )


def check_steps(config: EngineConfig) -> None:
    if config.max_num_seqs is not None:
        scheduler_config(config)


def make_scheduler(config: EngineConfig, model: Model, memory: MemoryPlan) -> Scheduler:
    return Scheduler(scheduler_config(config), make_cache(config, model, memory), DecisionLog())


def scheduler_config(config: EngineConfig) -> SchedulerConfig:
    return SchedulerConfig(
        policy=config.scheduling_policy,
        max_num_seqs=config.num_rows,
        max_num_batched_tokens=config.max_num_batched_tokens,
    )


def choose_kernels(config: EngineConfig, model: Model) -> CpuKernels | None:
    """The native kernels where they can run the model, else None for plain NumPy."""
    if config.kernels == "reference":
        return None
    obstacle = why_unavailable(config.block_size, model.config.head_dim, model.weights())
    if not obstacle:
        return CpuKernels(config.num_threads, compute="f32" if config.compute == "f32" else "int8")
    if config.kernels == "native":
        raise InvalidRequest("kernels", f"the native kernels cannot be used: {obstacle}")
    logger.warning("computing with NumPy, which is slow: the native kernels cannot be used: %s", obstacle)
    return None


def cpu_backend(config: EngineConfig, kernels: CpuKernels | None) -> Backend:
    if kernels is None:
        return Backend("cpu", "numpy", reference_compute(config), f"numpy {np.__version__}")
    return Backend("cpu", kernels.instruction_set, kernels.compute)


def reference_compute(config: EngineConfig) -> Literal["int8", "f32"]:
    return "int8" if config.compute == "int8" else "f32"


def fixed_costs(config: EngineConfig, model: Model, kernels: CpuKernels | None, cache_type: KVCacheType) -> FixedCosts:
    """What weights, a step and its logits take in the form they are computed with. Nothing is taken for it."""
    if kernels is None:  # NumPy takes what a step needs as it goes, and gives it back
        return FixedCosts(weights=sum(math.prod(weight.shape) * FLOAT32_BYTES for weight in model.weights()))
    groups = model.cache_groups()
    empty = PageStore(groups, [0] * len(groups), config.block_size, kernels.new_pages, cache_type)
    recorder, logits, hidden = record(model, kernels, empty.layers)
    workspace = kernels.workspace(recorder, logits, config.max_num_batched_tokens, hidden, config.num_rows)
    return FixedCosts(
        weights=sum(kernels.stored(weight).num_bytes for weight in model.weights()),
        workspace=workspace.num_bytes,
        logits=workspace.logits_bytes,
    )


def prepare_weights(model: Model, kernels: CpuKernels | None, progress: Progress | None = None) -> None:
    """Repack what the native kernels will read, so that the first step does not pay for it."""
    if kernels is None:
        return
    weights = list(model.weights())
    for number, weight in enumerate(weights, 1):
        kernels.prepare(weight)
        if progress is not None:
            progress(number, len(weights))


def kv_cache_type(config: EngineConfig, model: Model, kernels: CpuKernels | None) -> KVCacheType:
    """Halves are the default where inputs are rounded to bytes: beside that their rounding does not show."""
    if config.kv_cache_type != "auto":
        return config.kv_cache_type
    rounds = kernels is not None and kernels.compute == "int8"
    is_quantized = any(weight.format not in FLOAT_FORMATS for weight in model.weights())
    return "f16" if rounds and is_quantized else "f32"


def make_cache(config: EngineConfig, model: Model, memory: MemoryPlan) -> KVCacheManager:
    return KVCacheManager(model.cache_groups(), memory.num_pages, config.block_size, config.enable_prefix_caching)


def make_pages(
    config: EngineConfig, model: Model, kernels: CpuKernels | None, memory: MemoryPlan, cache_type: KVCacheType
) -> PageStore:
    groups, counts = model.cache_groups(), memory.num_pages
    if kernels is None:
        return PageStore(groups, counts, config.block_size, kv_cache_type=cache_type)
    return PageStore(groups, counts, config.block_size, kernels.new_pages, cache_type)


def make_executor(
    config: EngineConfig,
    model: Model,
    kernels: CpuKernels | None,
    pages: PageStore,
    max_model_len: int,
    end_token_ids: list[int],
) -> LocalExecutor:
    rows = WorkerRows(config.num_rows, max_model_len, config.block_size, len(model.cache_groups()))
    if kernels is None:
        operators = ReferenceOperators(compute=reference_compute(config))
        for weight in model.weights():
            operators.prepare(weight)
        eager = EagerForward(model, operators, pages.layers)
        return LocalExecutor(operators, eager, rows, pages, end_token_ids)
    recorded = RecordedForward(model, kernels, pages.layers, config.max_num_batched_tokens, config.num_rows)
    return LocalExecutor(kernels, recorded, rows, pages, end_token_ids)
