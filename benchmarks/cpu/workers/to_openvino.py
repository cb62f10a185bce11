"""OpenVINO's int8 form of a model: OpenVINO GenAI reads the F16 GGUF, NNCF makes its weights int8 a channel.

Runs in OpenVINO's own environment: python to_openvino.py model-F16.gguf folder
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nncf
import openvino as ov
import openvino_genai


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    with TemporaryDirectory(dir=target.parent) as folder:
        copy = Path(folder) / source.name
        copy.hardlink_to(source)  # the converted model is written beside the file that is read
        openvino_genai.LLMPipeline(str(copy), "CPU", enable_save_ov_model=True)
        model = ov.Core().read_model(Path(folder) / "openvino_model.xml")
        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        unfinished = target.with_name(target.name + ".part")
        unfinished.mkdir(exist_ok=True)
        ov.save_model(model, unfinished / "openvino_model.xml", compress_to_fp16=False)
        for part in Path(folder).glob("openvino_*tokenizer.*"):
            shutil.copy(part, unfinished)
        unfinished.rename(target)


if __name__ == "__main__":
    main()
