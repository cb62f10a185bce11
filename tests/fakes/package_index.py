"""A package index on disk that pip reads through PIP_FIND_LINKS, and small models packed into its wheels."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.errors import PullError
from pagoda.weights.registry import KnownModel
from pagoda.weights.sources.python_package import Member, PackageSource, Wheel

VERSION = "1.0"
LICENCE_TEXT = b"Do as you like.\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def random_bytes(num_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(num_bytes)


@dataclass(frozen=True)
class PackageIndex:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Makes pip see this index and no other, whatever the machine is set up to use."""
        return {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.folder),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
        }

    def copy_wheel(self, requirement: str, target: Path, on_bytes: Callable[[int], None]) -> None:
        """Stands in for `download_wheel` where a test is not about pip, which takes a second to start."""
        path = self.wheel_path(requirement.partition("==")[0])
        if not path.exists():
            raise PullError(f"pip could not fetch {requirement}: No matching distribution")
        target.write_bytes(path.read_bytes())

    def wheel_path(self, package: str) -> Path:
        return self.folder / f"{package.replace('-', '_')}-{VERSION}-py3-none-any.whl"

    def add(self, package: str, files: dict[str, bytes]) -> Wheel:
        info = f"{package.replace('-', '_')}-{VERSION}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {VERSION}\nRequires-Dist: not-to-be-fetched\n"
        content = {
            **files,
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        lines = [f"{name},sha256={_record_digest(data)},{len(data)}" for name, data in content.items()]
        content[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
        path = self.wheel_path(package)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        return Wheel(package, VERSION, path.stat().st_size)

    def add_model(self, name: str, parts: list[bytes]) -> KnownModel:
        """One wheel a part; the first one also carries the licence."""
        members = []
        texts: tuple[Member, ...] = ()
        for index, part in enumerate(parts):
            package = f"{name}-part{index + 1}"
            folder = package.replace("-", "_")
            files = {f"{folder}/data/model.gguf.part{index:02}": part}
            if index == 0:
                files[f"{folder}/data/LICENSE"] = LICENCE_TEXT
            wheel = self.add(package, files)
            members.append(Member(wheel, f"{folder}/data/model.gguf.part{index:02}", len(part), sha256(part)))
            if index == 0:
                texts = (Member(wheel, f"{folder}/data/LICENSE", len(LICENCE_TEXT), sha256(LICENCE_TEXT)),)
        source = PackageSource(tuple(members), sha256(b"".join(parts)), texts, "test licence")
        return KnownModel(name, "a test model", 1000, "F32", source)


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
