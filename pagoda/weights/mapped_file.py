"""A read-only memory map of one regular file, with the size that every check is made against."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from types import TracebackType

import numpy as np

from pagoda.core.errors import ModelFileError, ModelNotFound


class MappedFile:
    """The bytes of a file. Views of it stay valid after `close`: the map goes when the last view does."""

    def __init__(self, name: str, buffer: mmap.mmap) -> None:
        self.name = name
        self.size = len(buffer)
        self.buffer = buffer

    @classmethod
    def open(cls, path: Path) -> MappedFile:
        # O_NONBLOCK: a named pipe put in a model's place must not hang the opener.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(path, flags)
        except (FileNotFoundError, NotADirectoryError):
            raise ModelNotFound(f"{path.name}: there is no such file") from None
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path.name}: cannot be opened ({getattr(error, 'strerror', error)})") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(f"{path.name}: is not a regular file")
            if status.st_size == 0:
                raise ModelFileError(f"{path.name}: the file is empty")
            return cls(path.name, mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ))
        except OSError as error:
            raise ModelFileError(f"{path.name}: cannot be mapped ({error.strerror})") from None
        finally:
            os.close(descriptor)

    def view(self, offset: int, num_bytes: int) -> np.ndarray:
        """A read-only uint8 view; the caller has checked that the range lies in the file."""
        return np.frombuffer(self.buffer, dtype=np.uint8, count=num_bytes, offset=offset)

    def close(self) -> None:
        try:
            self.buffer.close()
        except BufferError:
            # Arrays still look into the map; they keep it alive and the last one ends it.
            return

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
