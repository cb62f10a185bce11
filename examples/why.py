"""Too little room on purpose: the scheduler's log tells who waited, was cut and was pushed back.

python examples/why.py [MODEL] [TOKENS]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pagoda import LLM, SamplingParams
from pagoda.cli.main import main as pagoda

PROMPT = "Count: one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen,"


def main(model: str = "smollm2", num_tokens: str = "16") -> None:
    params = SamplingParams(temperature=0, max_tokens=int(num_tokens))
    # Five pages of 16 tokens: room for one whole answer, and for the beginning of another.
    with (
        tempfile.TemporaryDirectory() as folder,
        LLM(model, max_model_len=64, num_pages=5, max_num_seqs=2, max_num_batched_tokens=16) as llm,
    ):
        llm.generate([PROMPT, "Now the colours: " + PROMPT], params, use_tqdm=False)
        log = str(Path(folder) / "run.log")
        llm.save_decision_log(log)
        pagoda(["why", log])
        pagoda(["why", log, "1"])
        pagoda(["replay", log])


if __name__ == "__main__":
    main(*sys.argv[1:])
