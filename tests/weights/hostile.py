"""Opens mutants of a file in a child process and reports what happened, so that a crash, a hang or a flood is seen.

`run_batch` starts the child; the child is this module run by name. What to do with each mutant is given as
"module:function": the function takes the path, opens it and touches all that it offers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import mmap
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from io import FileIO
from itertools import islice
from pathlib import Path

import numpy as np

from pagoda.core.errors import ModelFileError
from pagoda.weights.checkpoint import open_checkpoint
from pagoda.weights.gguf import GGUFFile
from pagoda.weights.quantization import FORMATS
from pagoda.weights.safetensors import SafetensorsFile
from pagoda.weights.tensor import QuantizedTensor, TensorFile
from tests.weights.gguf_surgery import read_header
from tests.weights.mutants import Field, Mutation, mutations, number_fields_of_text

MAX_CPU_SECONDS = 2
MAX_EXTRA_BYTES = 64 << 20
ROOT = Path(__file__).parents[2]
CLEAR_PEAK = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Report:
    """What a batch did. `unexpected` names mutants that ended in any error but a `ModelFileError`."""

    num_opened: int
    num_refused: int
    unexpected: list[str]
    peak_bytes: int
    resident_bytes: int
    file_bytes: int


def run_batch(source: Path, target: str, seed: int, count: int, trace_every: int = 1) -> Report:
    """Feed `count` mutants of `source` to `target`. A child that dies by a signal or an exception fails here.

    Resident memory is measured for every mutant, traced allocations for one in `trace_every`: tracing is slow.
    """
    arguments = [str(source), target, str(seed), str(count), str(trace_every)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.weights.hostile", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60 + count, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"the child ended with {done.returncode}: {done.stderr[-2000:]}"
    return Report(**json.loads(done.stdout))


def assert_harmless(report: Report) -> None:
    assert report.unexpected == []
    assert report.peak_bytes <= report.file_bytes + MAX_EXTRA_BYTES
    assert report.resident_bytes <= report.file_bytes + MAX_EXTRA_BYTES


def open_gguf(path: Path) -> None:
    with GGUFFile.open(path) as file:
        for key in file.metadata:
            file.metadata[key]
        _touch(file)


def open_safetensors(path: Path) -> None:
    with SafetensorsFile.open(path) as file:
        _touch(file)


def open_folder_of(path: Path) -> None:
    """For mutants of an index or a configuration: the model of the folder that the file stands in."""
    with open_checkpoint(path.parent) as checkpoint:
        for name in checkpoint.names:
            checkpoint.tensor(name).to_float32()


def _touch(file: TensorFile) -> None:
    for name, info in file.tensors.items():
        raw = file.raw(name)
        assert raw.nbytes == info.num_bytes
        tensor = QuantizedTensor.from_bytes(info, raw)
        # The first and the last byte of the map, and one block.
        raw[:1].sum() + raw[-1:].sum()
        form = FORMATS[info.format]
        form.dequantize(tensor.raw.reshape(-1)[: form.block_bytes])
        if len(info.shape) > 1 and info.shape[0]:
            tensor.rows_to_float32(np.array([info.shape[0] - 1]))


def find_header(path: Path) -> tuple[bytes, list[Field]]:
    """The bytes of a well-formed file's header and the fields in it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] == b"GGUF":
            header = read_header(data)
            return data[: header.end], header.fields
        if path.suffix == ".json":
            return data[:], number_fields_of_text(data[:], 0)
        text = data[8 : 8 + int.from_bytes(data[:8], "little")]
        return data[:8] + text, [Field(0, 8), *number_fields_of_text(text, 8)]


def _mutated_files(source: Path, seed: int, count: int) -> Iterator[tuple[int, Path]]:
    """Each mutant in turn, in one file that is patched, handed out and healed again."""
    header, fields = find_header(source)
    size = source.stat().st_size
    with source.open("r+b", buffering=0) as file:
        for number, mutation in enumerate(islice(mutations(header, fields, seed), count)):
            _patch(file, mutation)
            yield number, source
            _heal(file, mutation, header, size)


def _patch(file: FileIO, mutation: Mutation) -> None:
    for offset, patch in mutation.patches:
        file.seek(offset)
        file.write(patch)
    if mutation.length is not None:
        file.truncate(mutation.length)


def _heal(file: FileIO, mutation: Mutation, header: bytes, size: int) -> None:
    for offset, patch in mutation.patches:
        file.seek(offset)
        file.write(header[offset : offset + len(patch)])
    if mutation.length is not None:
        # What was cut off the data after the header comes back as zeros, which are weights like any other.
        file.seek(mutation.length)
        file.write(header[mutation.length :])
        file.truncate(size)


def run_mutants(source: Path, target: Callable[[Path], None], seed: int, count: int, trace_every: int) -> Report:
    num_opened, num_refused, unexpected, peak_bytes, resident_bytes = 0, 0, [], 0, 0
    file_bytes = source.stat().st_size
    for number, path in _mutated_files(source, seed, count):
        resident_before = _forget_resident_peak()
        try:
            _in_time(target, path)
            num_opened += 1
        except ModelFileError as error:
            num_refused += 1
            if "\n" in str(error):
                unexpected.append(f"mutant {number}: a message of more than one line")
        except Exception as error:
            unexpected.append(f"mutant {number}: {error!r}")
        resident_bytes = max(resident_bytes, _resident_peak() - resident_before)
        if number % trace_every == 0:
            peak_bytes = max(peak_bytes, _traced_peak(target, path))
    return Report(num_opened, num_refused, unexpected[:10], peak_bytes, resident_bytes, file_bytes)


def _in_time(target: Callable[[Path], None], path: Path) -> None:
    # SIGPROF ends a mutant that computes for more than its time, and with it the child.
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)
    try:
        target(path)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _traced_peak(target: Callable[[Path], None], path: Path) -> int:
    """The most that Python and NumPy held while the mutant was open. Apart from the clock, which tracing would slow."""
    tracemalloc.start()
    with contextlib.suppress(Exception):
        target(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _forget_resident_peak() -> int:
    if CLEAR_PEAK.exists():
        CLEAR_PEAK.write_text("5")
    return _resident_peak()


def _resident_peak() -> int:
    """The most memory this process has held, in bytes; on Linux, since the last call to `_forget_resident_peak`."""
    if not CLEAR_PEAK.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    source, target, *numbers = sys.argv[1:]
    module, function = target.split(":")
    # A leftover cycle would keep maps of earlier mutants alive and count against this one.
    gc.collect()
    report = run_mutants(Path(source), getattr(importlib.import_module(module), function), *map(int, numbers))
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
