"""The Hugging Face form of a GGUF model, its weights dequantized to float32: what torch engines and the oracle load.

.venv/bin/python -m benchmarks.cpu.workers.to_hugging_face model.gguf folder
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, quantization_config=plain)
    # The weights are plain now; whatever still calls them quantized would forbid to save them.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # Written elsewhere and renamed, so that a folder of that name is always whole.
    unfinished = target.with_name(target.name + ".part")
    model.save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(**where).save_pretrained(unfinished)
    unfinished.rename(target)


if __name__ == "__main__":
    main()
