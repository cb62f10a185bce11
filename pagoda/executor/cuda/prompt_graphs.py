"""Steps with prompts as CUDA graphs: what depends on the number of tokens alone is captured, attention stands between.

Steps of many compositions share a number of tokens once it is padded to one of a few sizes. Their products, norms and
gates are then the same launches; only attention asks which rows the tokens belong to. A step that is a single prompt
has nothing to ask either, and is one graph from end to end.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from pagoda.executor.cuda.graphs import pool_for
from pagoda.executor.cuda.halves import is_out_of_memory
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.steps import Piece

logger = logging.getLogger(__name__)

# A form is captured when it comes for the second time: its kernels are built then, and it may come again.
STEPS_BEFORE_CAPTURE = 2
# Each takes some megabytes of the device, since most hold a graph for each layer.
MOST_FORMS = 32
# Where there are more, one that was dropped waits, so that captures stay rare.
STEPS_AFTER_DROP = 64
# Steps of more tokens take the device longer than the host, and padding them would take it longer still.
MOST_PADDED = 2048
# They are launched as they are, unless they have all the tokens that a step may have, or nearly.
NEARLY = 31 / 32


def padded_sizes(most: int) -> list[int]:
    """Products work on tiles of 64 or 128 tokens: padding that fills them costs next to nothing."""
    sizes = [16, 32, *range(64, 512, 64), *range(512, MOST_PADDED + 1, 128)]
    return [*(size for size in sizes if size < most), most]


@dataclass(frozen=True)
class Form:
    """Steps that the same graphs serve."""

    num_tokens: int
    """With the padding."""
    is_one_prompt: bool


@dataclass(frozen=True, eq=False)
class Part:
    """Pieces of a step that are launched together: from Python, or as a graph."""

    pieces: Sequence[Piece]
    is_fixed: bool
    """All they depend on is the form."""
    graph: torch.cuda.CUDAGraph | None = None

    def launch(self, batch: DeviceBatch, padded: DeviceBatch) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        for piece in self.pieces:
            piece.launch(padded if self.is_fixed else batch)


class PromptGraphs:
    """Without a GPU everything is launched each time, with the padding."""

    def __init__(self, pieces: Sequence[Piece], max_tokens: int, device: torch.device) -> None:
        self._sizes = padded_sizes(max_tokens)
        self._captures = device.type == "cuda"
        self._apart = [Part([piece], not piece.is_attention) for piece in pieces]
        self._whole = [Part(pieces, is_fixed=True)]
        self._captured: dict[Form, list[Part]] = {}  # the one used last comes last
        self._num_steps: Counter[Form] = Counter()
        self._launched: dict[Form, DeviceBatch] = {}  # from Python, and on what
        self._due: Form | None = None
        self._pool: Any = None
        self._stream = torch.cuda.Stream(device) if self._captures else None

    def size_for(self, num_tokens: int) -> int:
        size = self._sizes[bisect_left(self._sizes, num_tokens)]
        return size if size <= MOST_PADDED or num_tokens >= NEARLY * size else num_tokens

    def run(self, batch: DeviceBatch, padded: DeviceBatch) -> None:
        """Compute the batch; `padded` is the same one filled up to one of the sizes."""
        self._due = None
        form = Form(padded.num_tokens, batch.num_entries == 1 and not batch.num_decoding)
        parts = self._captured.pop(form, None)
        if parts is not None:
            self._captured[form] = parts
        for part in parts or self._parts(form):
            part.launch(batch, padded)
        if parts is None:
            self._note(form, padded)

    def capture_due(self) -> None:
        """Capture the form of the step that was launched last, where it is time: the device has that step to do."""
        if self._due is not None:
            self._capture(self._due)
            self._due = None

    def capture_one(self) -> bool:
        """Capture a form that came once, while there is nothing else to do; whether there was one."""
        form = next(iter(self._launched), None)
        if form is None or len(self._captured) >= MOST_FORMS:
            return False
        self._capture(form)
        return True

    def clear(self) -> None:
        self._captured.clear()
        self._launched.clear()
        self._due = None

    def _parts(self, form: Form) -> list[Part]:
        return self._whole if form.is_one_prompt else self._apart

    def _note(self, form: Form, padded: DeviceBatch) -> None:
        if not self._captures or form.num_tokens not in self._sizes:
            return
        self._num_steps[form] += 1
        if self._num_steps[form] > 0:
            self._launched[form] = padded
        if self._num_steps[form] >= STEPS_BEFORE_CAPTURE:
            self._due = form

    def _capture(self, form: Form) -> None:
        """Nothing runs: every kernel that is met here was built when the form was launched."""
        padded = self._launched.pop(form)
        if len(self._captured) >= MOST_FORMS:
            oldest = next(iter(self._captured))
            del self._captured[oldest]  # the steps that used it have long been collected
            self._num_steps[oldest] = STEPS_BEFORE_CAPTURE - STEPS_AFTER_DROP
        self._pool = pool_for(self._captured, self._pool)
        try:
            with torch.cuda.stream(self._stream):
                self._captured[form] = [self._captured_part(part, padded) for part in self._parts(form)]
        except RuntimeError as error:  # no step is under way in here; this form goes without graphs for a while
            self._num_steps[form] = STEPS_BEFORE_CAPTURE - STEPS_AFTER_DROP
            if not is_out_of_memory(error):
                reason = str(error).partition("\n")[0]
                logger.warning("steps of %d tokens are run without graphs: %s", form.num_tokens, reason)

    def _captured_part(self, part: Part, padded: DeviceBatch) -> Part:
        if not part.is_fixed:
            return part
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            part.launch(padded, padded)
        finally:
            graph.capture_end()
        return replace(part, graph=graph)
