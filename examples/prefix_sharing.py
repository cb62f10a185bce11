"""Questions behind one long text: its pages are computed once and shared.

python examples/prefix_sharing.py [MODEL] [TOKENS]
"""

from __future__ import annotations

import sys

from pagoda import LLM, SamplingParams

TEXT = "The museum opens at nine and closes at five. On Mondays it is closed. Children enter free. " * 4
QUESTIONS = ["When does it open?", "When is it closed?", "Who enters free?"]


def main(model: str = "smollm2", num_tokens: str = "12") -> None:
    prompts = [f"{TEXT}\nQuestion: {question}\nAnswer:" for question in QUESTIONS]
    for enabled in (False, True):
        with LLM(model, enable_prefix_caching=enabled) as llm:
            outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=int(num_tokens)), use_tqdm=False)
        num_prompt = sum(len(output.prompt_token_ids) for output in outputs)
        num_cached = sum(output.num_cached_tokens for output in outputs)
        print(f"prefix caching {enabled!s:>5}: {num_prompt - num_cached} of {num_prompt} prompt tokens computed")
    for question, output in zip(QUESTIONS, outputs, strict=True):
        print(f"{question} {output.outputs[0].text.strip()!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
