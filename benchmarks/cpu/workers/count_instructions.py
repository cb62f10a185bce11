"""One prompt and its answer on one thread, for a program that counts instructions: MODEL NUM_PROMPT NUM_OUTPUT."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from pagoda import LLM, SamplingParams


def main() -> None:
    model, num_prompt, num_output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    llm = LLM(model, device="cpu", num_threads=1, max_num_seqs=1, max_model_len=1024, enable_prefix_caching=False)
    params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True, detokenize=False)
    llm.generate([[10 + 37 * i % 19_000 for i in range(num_prompt)]], params, use_tqdm=False)


if __name__ == "__main__":
    main()
