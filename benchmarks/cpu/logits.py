"""The logits of every position of a text, from each engine in the way that it gives them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.cpu import peers
from pagoda import LLM
from pagoda.kernels.base import RaggedBatch

FloatArray = npt.NDArray[np.float32]


class LogitsSource(Protocol):
    def logits(self, token_ids: list[int]) -> FloatArray:
        """A row for each token, the scores of what may follow it."""
        ...

    def close(self) -> None: ...


class PagodaLogits:
    """Below the engine, which only hands out the best few: the step that the executor would run, on its own pages."""

    def __init__(self, model: Path, num_threads: int, length: int, compute: str) -> None:
        settings: dict[str, Any] = {"compute": compute} if compute else {}
        self.llm = LLM(
            model,
            device="cpu",
            num_threads=num_threads,
            max_num_seqs=1,
            max_num_batched_tokens=length,
            max_model_len=length,
            **settings,
        )
        engine = self.llm.engine
        self._forward: Any = engine.loop.executor._forward  # type: ignore[attr-defined]
        self._num_groups = len(engine.model.cache_groups())
        self._page_size = engine.config.block_size

    def logits(self, token_ids: list[int]) -> FloatArray:
        length = len(token_ids)
        positions = np.arange(length, dtype=np.int32)
        table = np.arange(-(-length // self._page_size), dtype=np.int32)[None]
        batch = RaggedBatch(
            token_ids=np.array(token_ids, np.int32),
            positions=positions,
            row_starts=np.array([0, length], np.int32),
            context_lens=np.array([length], np.int32),
            page_tables=(table,) * self._num_groups,
        )
        rows: FloatArray = self._forward.logits(batch, positions)
        return rows

    def close(self) -> None:
        self.llm.close()


class LlamaLogits:
    """llama.cpp in its own environment; rows come back through a file in memory."""

    def __init__(self, model: Path, num_threads: int, length: int) -> None:
        shared = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
        self._file = Path(self._folder.name) / "logits"
        worker = Path(__file__).parent / "workers" / "llama_logits_engine.py"
        command = [str(peers.python_of("llama")), str(worker), str(model), str(num_threads), str(length)]
        self._process = subprocess.Popen(
            [*command, str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._vocab_size = self._reply()["vocab_size"]

    def logits(self, token_ids: list[int]) -> FloatArray:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(token_ids) + "\n")
        self._process.stdin.flush()
        self._reply()
        return np.fromfile(self._file, np.float32).reshape(len(token_ids), self._vocab_size)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp stopped")
        reply: dict[str, Any] = json.loads(line)
        return reply


class TransformersLogits:
    """float32 on the dequantized weights: what the others are measured against."""

    def __init__(self, folder: Path, num_threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(num_threads)
        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def logits(self, token_ids: list[int]) -> FloatArray:
        with self._torch.inference_mode():
            rows: FloatArray = self._model(self._torch.tensor([token_ids])).logits[0].numpy()
            return rows

    def close(self) -> None:
        del self._model
