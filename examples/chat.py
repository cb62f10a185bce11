"""A conversation of two turns; the second question makes sense only with the first.

python examples/chat.py [MODEL] [TOKENS]
"""

from __future__ import annotations

import sys

from pagoda import LLM, SamplingParams


def main(model: str = "smollm2", num_tokens: str = "40") -> None:
    params = SamplingParams(temperature=0, max_tokens=int(num_tokens))
    messages = [{"role": "system", "content": "Answer in one short sentence."}]
    with LLM(model) as llm:
        for question in ("What is the capital of Italy?", "And of Spain?"):
            messages.append({"role": "user", "content": question})
            [output] = llm.chat(messages, params, use_tqdm=False)
            answer = output.outputs[0].text
            messages.append({"role": "assistant", "content": answer})
            print(f"{question}\n  {answer}   ({output.num_cached_tokens} prompt tokens came from the cache)")


if __name__ == "__main__":
    main(*sys.argv[1:])
