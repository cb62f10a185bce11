"""From a model to an executor on the device: weights first, then what a step needs, and pages from what is left."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence

import torch
import triton

from pagoda.core.cache import KVCacheType
from pagoda.core.errors import InvalidRequest
from pagoda.executor.cuda.device_rows import DeviceRows
from pagoda.executor.cuda.drawing import DeviceDraws
from pagoda.executor.cuda.executor import CudaExecutor, DeviceParts
from pagoda.executor.cuda.inputs import StepInputs
from pagoda.executor.cuda.pages import DevicePages
from pagoda.executor.cuda.sharing import PageSharing
from pagoda.executor.memory import MemoryPlan
from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.program import Program
from pagoda.kernels.cuda.recorder import Recorder
from pagoda.kernels.cuda.weights import DeviceWeights
from pagoda.kernels.reference.sampling import sample
from pagoda.models import Model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CACHE_TYPES: dict[torch.dtype, KVCacheType] = {torch.float32: "f32", torch.bfloat16: "bf16"}
# Left to the libraries: cuBLAS workspaces, graphs, and what torch keeps between allocations.
SPARE_BYTES = 2 << 30


class CudaBuilder:
    """`device` other than "cuda" computes the same with torch on a CPU, the kernels interpreted: for tests."""

    def __init__(self, model: Model, dtype: str = "auto", quantization: str = "none", device: str = "cuda") -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise InvalidRequest("device", "'cuda' was asked for, and torch finds no CUDA device here")
        self._model = model
        self._device = torch.device(device, 0) if device == "cuda" else torch.device(device)
        self._dtype = DTYPES[dtype] if dtype != "auto" else _stored_type(model)
        self._in_bytes = quantization == "fp8"
        self._weights = DeviceWeights(self._device, self._dtype)
        self._program: Program | None = None
        self._max_tokens = 0

    @property
    def kv_cache_type(self) -> KVCacheType:
        return CACHE_TYPES[self._dtype]

    def names(self) -> tuple[str, str, str, str]:
        """Of the device, of what computes on it, of what it computes in, and of the libraries that do."""
        device = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else self._device.type
        compute = "fp8" if self._in_bytes else self.kv_cache_type
        libraries = f"torch {torch.__version__} triton {triton.__version__}"
        return device.removeprefix("NVIDIA "), "triton", compute, libraries

    def make_program(self, max_num_seqs: int, max_num_batched_tokens: int, max_model_len: int) -> None:
        """Record the forward pass and bring its weights to the device."""
        empty = [KVPages(None, None) for _ in range(self._model.config.num_layers)]
        recorder = Recorder(empty)
        batch = recorder.batch()
        hidden = self._model.forward(recorder, batch, empty)
        logits = self._model.logits(recorder, recorder.take_rows(hidden, batch.token_ids))
        self._max_tokens = max(max_num_batched_tokens, max_num_seqs)
        self._program = Program(
            recorder,
            logits,
            self._weights,
            max_tokens=self._max_tokens,
            max_logits=max_num_seqs,
            max_positions=max_model_len,
            in_bytes=self._in_bytes,
        )

    def num_bytes(self) -> int:
        """What weights and buffers hold on the device."""
        assert self._program is not None
        return self._weights.num_bytes() + self._program.num_bytes()

    def free_bytes(self) -> int:
        if self._device.type != "cuda":
            return 1 << 30
        torch.cuda.empty_cache()
        return max(0, torch.cuda.mem_get_info(self._device)[0] - SPARE_BYTES)

    def make_executor(
        self, memory: MemoryPlan, page_size: int, max_num_seqs: int, end_token_ids: Sequence[int]
    ) -> CudaExecutor:
        assert self._program is not None
        groups = self._model.cache_groups()
        device = self._device
        pages = DevicePages(groups, memory.num_pages, page_size, self._dtype, device)
        self._program.bind(pages.layers)
        rows = DeviceRows(max_num_seqs, memory.max_model_len, page_size, len(groups), device)
        vocab_size = self._model.config.vocab_size
        inputs = StepInputs(rows, max_num_seqs, self._max_tokens, page_size, vocab_size, device)
        sharing = None
        if not groups[0].window:
            sharing = PageSharing(max_num_seqs, memory.max_model_len, page_size, device)
        draws = DeviceDraws(max_num_seqs, vocab_size, device)
        parts = DeviceParts(self._program, rows, inputs, pages, sharing, draws)
        executor = CudaExecutor(parts, max_num_seqs, end_token_ids, sample, device)
        # torch alone is half a million objects: looking through them in the midst of serving stops the host for 150 ms.
        gc.collect()
        gc.freeze()
        return executor


def _stored_type(model: Model) -> torch.dtype:
    """Single precision only where the largest weights are stored so."""
    largest = max(model.weights(), key=lambda weight: math.prod(weight.shape))
    return torch.float32 if largest.format in ("F32", "F64") else torch.bfloat16
