"""How sure the model was of each token, and what else it thought of.

python examples/logprobs.py [MODEL] [TOKENS]
"""

from __future__ import annotations

import math
import sys

from pagoda import LLM, SamplingParams


def main(model: str = "smollm2", num_tokens: str = "6") -> None:
    params = SamplingParams(temperature=0, max_tokens=int(num_tokens), logprobs=3)
    with LLM(model) as llm:
        [output] = llm.generate("The capital of France is", params, use_tqdm=False)
    answer = output.outputs[0]
    for token_id, choices in zip(answer.token_ids, answer.logprobs or (), strict=True):
        chosen = choices[token_id]
        others = ", ".join(
            f"{choice.decoded_token!r} {math.exp(choice.logprob):.1%}"
            for other_id, choice in choices.items()
            if other_id != token_id
        )
        print(f"{chosen.decoded_token!r:>12} {math.exp(chosen.logprob):6.1%}   instead of {others}")
    print(f"log-probability of the whole answer: {answer.cumulative_logprob:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
