"""Many prompts at once: they share the engine's steps, and the answers come back in order.

python examples/batch.py [MODEL] [TOKENS]
"""

from __future__ import annotations

import sys

from pagoda import LLM, SamplingParams

PROMPTS = ["The capital of France is", "The largest planet is", "Water boils at", "The opposite of hot is"]


def main(model: str = "smollm2", num_tokens: str = "12") -> None:
    with LLM(model) as llm:
        for output in llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=int(num_tokens))):
            print(f"{output.prompt} ->{output.outputs[0].text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
