"""Texts as vectors: which of some sentences is nearest to a question.

python examples/embeddings.py [MODEL] [SENTENCES]
"""

from __future__ import annotations

import sys

from pagoda import LLM

QUESTION = "Where do whales live?"
SENTENCES = ["Whales swim in every ocean.", "Bread is made of flour.", "The train leaves at noon.", "Cats like fish."]


def main(model: str = "smollm2", num_sentences: str = "4") -> None:
    sentences = SENTENCES[: int(num_sentences)]
    with LLM(model) as llm:
        question, *others = [output.embedding for output in llm.embed([QUESTION, *sentences], use_tqdm=False)]
    # The vectors have length one, so a dot product is the cosine of the angle between two of them.
    cosines = [float(question @ other) for other in others]
    for cosine, sentence in sorted(zip(cosines, sentences, strict=True), reverse=True):
        print(f"{cosine:.3f}  {sentence}")


if __name__ == "__main__":
    main(*sys.argv[1:])
