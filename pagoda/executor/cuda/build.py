"""From a model to an executor on the device: first what everything will take, and then everything."""

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
from pagoda.executor.cuda.executor import CudaExecutor
from pagoda.executor.cuda.inputs import StepInputs
from pagoda.executor.cuda.mailbox import Returns
from pagoda.executor.cuda.pages import DevicePages
from pagoda.executor.cuda.parts import DeviceMemory, DeviceParts, DeviceSizes, RowParts
from pagoda.executor.cuda.prompt_scores import PromptScorer
from pagoda.executor.cuda.recording import record
from pagoda.executor.cuda.sharing import PageSharing
from pagoda.executor.memory import FLOAT32_BYTES, FixedCosts, MemoryPlan
from pagoda.kernels.cuda.attention import Attention, HeadShape
from pagoda.kernels.cuda.counting import NOWHERE
from pagoda.kernels.cuda.deterministic import FixedAttention
from pagoda.kernels.cuda.program import Program, rope_tables
from pagoda.kernels.cuda.recorder import Attend
from pagoda.kernels.cuda.weights import DeviceWeights
from pagoda.models import Model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CACHE_TYPES: dict[torch.dtype, KVCacheType] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
}
# An allowance: cuBLAS workspaces, the code of kernels, graphs, and what torch keeps between allocations.
LIBRARY_BYTES = 1 << 30


def free_device_bytes() -> int:
    """What could be had now on the device of this machine."""
    if not torch.cuda.is_available():
        raise InvalidRequest("gpu_memory", "torch finds no CUDA device here; say how much memory to plan for")
    return DeviceMemory(torch.device("cuda", 0)).free_bytes


class CudaBuilder:
    """Everything can be made on a device that holds nothing (`NOWHERE`), which is how it is counted beforehand.

    `device` "cpu" computes the same with torch on a CPU, the kernels interpreted: for tests.
    """

    def __init__(
        self,
        model: Model,
        dtype: str = "auto",
        quantization: str = "none",
        device: str = "cuda",
        deterministic: bool = False,
        kv_cache_type: str = "auto",
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise InvalidRequest("device", "'cuda' was asked for, and torch finds no CUDA device here")
        self._model = model
        self._device = torch.device(device, 0) if device == "cuda" else torch.device(device)
        self._dtype = DTYPES[dtype] if dtype != "auto" else _stored_type(model)
        self._page_dtype = torch.float8_e4m3fn if kv_cache_type == "fp8" else self._dtype
        self._quantization = quantization
        self._deterministic = deterministic
        self._groups = model.cache_groups()
        self._recorder, self._logits = record(model)
        self._memory = DeviceMemory(self._device)
        self._parts: DeviceParts | None = None
        self._max_num_seqs = 0

    @property
    def kv_cache_type(self) -> KVCacheType:
        return CACHE_TYPES[self._page_dtype]

    def names(self) -> tuple[str, str, str, str]:
        """Of the device, of what computes on it, of what it computes in, and of the libraries that do."""
        device = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else self._device.type
        libraries = f"torch {torch.__version__} triton {triton.__version__}"
        kernels = "triton_deterministic" if self._deterministic else "triton"
        return device.removeprefix("NVIDIA "), kernels, self.compute, libraries

    @property
    def compute(self) -> str:
        plain = CACHE_TYPES[self._dtype]
        return {"none": plain, "fp8": "fp8"}.get(self._quantization, f"{plain} with {self._quantization} weights")

    @property
    def free_bytes(self) -> int:
        """On the device, when nothing of ours was there."""
        return self._memory.free_bytes

    def fixed_costs(self, sizes: DeviceSizes) -> FixedCosts:
        """What is taken whatever the length of a row. Nothing is taken for it."""
        parts = self._make_parts(NOWHERE, sizes, 1, [0] * len(self._groups))
        lines = parts.lines()
        others = {"draws": lines["draws"], "sharing": lines["sharing"], "libraries": self._passing_bytes(sizes)}
        return FixedCosts(weights=lines["weights"], workspace=lines["workspace"], logits=lines["logits"], others=others)

    def lines_of_rows(self, sizes: DeviceSizes, max_model_len: int) -> dict[str, int]:
        """What grows with the length of a row. Nothing is taken for it."""
        return self._row_parts(NOWHERE, sizes, max_model_len).lines()

    def host_bytes(self, sizes: DeviceSizes, max_model_len: int) -> int:
        """What will be pinned in main memory."""
        return self._make_parts(NOWHERE, sizes, max_model_len, [0] * len(self._groups)).num_host_bytes

    def load(self, memory: MemoryPlan, sizes: DeviceSizes) -> None:
        """Take all of it: weights, pages, and what a step works in."""
        self._parts = self._make_parts(self._device, sizes, memory.max_model_len, memory.num_pages)
        self._max_num_seqs = sizes.max_num_seqs

    def make_executor(self, end_token_ids: Sequence[int]) -> CudaExecutor:
        """Of what was loaded."""
        assert self._parts is not None
        executor = CudaExecutor(self._parts, self._max_num_seqs, end_token_ids, self._device, self._memory)
        # torch alone is half a million objects: looking through them in the midst of serving stops the host for 150 ms.
        gc.collect()
        gc.freeze()
        return executor

    def _passing_bytes(self, sizes: DeviceSizes) -> int:
        """The libraries' memory, and the largest thing that a step makes and drops: hidden states as singles on their
        way to the host."""
        return LIBRARY_BYTES + FLOAT32_BYTES * sizes.max_num_seqs * self._model.config.hidden_size

    def _make_parts(
        self, device: torch.device, sizes: DeviceSizes, max_model_len: int, num_pages: Sequence[int]
    ) -> DeviceParts:
        of_rows = self._row_parts(device, sizes, max_model_len)
        program = Program(
            self._recorder,
            self._logits,
            DeviceWeights(device, self._dtype),
            of_rows.attention,
            of_rows.ropes,
            max_tokens=sizes.max_tokens,
            max_logits=sizes.max_num_seqs,
            quantization=self._quantization,
            deterministic=self._deterministic,
        )
        if device.type == "cuda":
            torch.cuda.empty_cache()  # weights came through buffers that nobody needs any more
        pages = DevicePages(self._groups, num_pages, sizes.page_size, self._page_dtype, device)
        program.bind(pages.layers)
        sharing = None
        if not self._groups[0].window and not self._deterministic:
            sharing = PageSharing(sizes.max_num_seqs, max_model_len, sizes.page_size, device)
        most, vocab_size = sizes.max_num_seqs, self._model.config.vocab_size
        draws = DeviceDraws(most, vocab_size, of_rows.rows.token_ids)
        prompt_scores = PromptScorer(sizes.max_tokens, most, vocab_size, device)
        return DeviceParts(program, pages, of_rows, sharing, draws, prompt_scores, Returns(2 * most, device))

    def _row_parts(self, device: torch.device, sizes: DeviceSizes, max_model_len: int) -> RowParts:
        most = sizes.max_num_seqs
        rows = DeviceRows(most, max_model_len, sizes.page_size, len(self._groups), device)
        vocab_size = self._model.config.vocab_size
        shapes = self._head_shapes()
        is_fixed = self._deterministic
        return RowParts(
            FixedAttention(device, most, max_model_len, shapes) if is_fixed else Attention(device, most, shapes),
            [rope_tables(rope, max_model_len, device) for rope in self._recorder.ropes],
            rows,
            StepInputs(rows, most, sizes.max_tokens, sizes.page_size, vocab_size, device),
        )

    def _head_shapes(self) -> list[HeadShape]:
        calls = [call for call in self._recorder.calls if isinstance(call, Attend)]
        groups = [self._groups[call.group] for call in calls]
        return [
            HeadShape(call.reads[0].width // group.head_dim, group.num_kv_heads, group.head_dim, call.window)
            for call, group in zip(calls, groups, strict=True)
        ]


def _stored_type(model: Model) -> torch.dtype:
    """Single precision only where the largest weights are stored so."""
    largest = max(model.weights(), key=lambda weight: math.prod(weight.shape))
    return torch.float32 if largest.format in ("F32", "F64") else torch.bfloat16
