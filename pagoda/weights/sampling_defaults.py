"""Where a model's files say how to draw from it: `generation_config.json`, or the `general.sampling` keys of GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pagoda.core.errors import InvalidRequest, ModelFileError
from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.weights.checkpoint import Checkpoint, open_checkpoint
from pagoda.weights.json_file import read_json_object
from pagoda.weights.safetensors import file_inside

FILE_NAME = "generation_config.json"
# Fields of ours by their names there. `do_sample` is not among them: whether a request draws is for its temperature to
# say, and many files leave it out.
HUB_NAMES = {name: name for name in SamplingDefaults.__struct_fields__}
GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def recommended_by(path: Path) -> SamplingDefaults:
    """By a .gguf file or a folder in Hugging Face form."""
    with open_checkpoint(path) as checkpoint:
        return read_sampling_defaults(checkpoint)


def read_sampling_defaults(checkpoint: Checkpoint) -> SamplingDefaults:
    if checkpoint.kind == "gguf":
        said = {name: _as_written(checkpoint.config.get(name)) for name in GGUF_NAMES.values()}
        return _defaults(said, GGUF_NAMES, checkpoint.path.name)
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    if not (folder / FILE_NAME).exists():
        return SamplingDefaults()
    return _defaults(read_json_object(file_inside(folder, FILE_NAME)), HUB_NAMES, FILE_NAME)


def _as_written(value: Any) -> Any:
    """0.6 is kept there in single precision, and is not meant to be 0.6000000238."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _defaults(found: Mapping[str, Any], names: Mapping[str, str], file: str) -> SamplingDefaults:
    known = {field: found[name] for field, name in names.items() if found.get(name) is not None}
    try:
        return SamplingDefaults(**known)
    except InvalidRequest as error:
        what = str(error).removeprefix(f"{error.field}: ")
        way_out = "mend the file, or leave its values out with generation_config='none'"
        raise ModelFileError(f"{file}: {names.get(error.field, error.field)}: {what}; {way_out}") from None
