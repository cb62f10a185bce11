"""How close each engine comes to the float32 model: divergence of next-token distributions over plain text.

make bench-cpu-quality
.venv/bin/python -m benchmarks.cpu.quality --model smollm2 --windows 40
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.cpu import peers, prose
from benchmarks.cpu.compare import LLAMA_FORMATS, compute_choices
from benchmarks.cpu.divergence import Summary, WindowScores, score, summarize
from benchmarks.cpu.logits import LlamaLogits, LogitsSource, PagodaLogits, TransformersLogits
from benchmarks.report import machine, print_table, write_json
from pagoda import LLM
from pagoda.weights.store import ensure_model

QUESTION = "What is the capital of France?"
NUM_ANSWER = 16
REFERENCE = "transformers f32"


def sources(model: Path, args: argparse.Namespace) -> Iterator[tuple[str, LogitsSource]]:
    for compute in ("", *(name for name in compute_choices() if name != "auto")):
        yield f"pagoda {compute}".strip(), PagodaLogits(model, args.threads, args.length, compute)
    yield "llama.cpp", LlamaLogits(model, args.threads, args.length)
    for name in args.formats:
        yield f"llama.cpp {name}", LlamaLogits(peers.requantized(model, name), args.threads, args.length)


def greedy(source: LogitsSource, prompt: list[int], end_ids: frozenset[int], most: int = NUM_ANSWER) -> list[int]:
    """The most likely answer; the whole text is computed anew for each token, which is short enough."""
    answer: list[int] = []
    while len(answer) < most:
        best = int(source.logits(prompt + answer)[-1].argmax())
        if best in end_ids:
            break
        answer.append(best)
    return answer


def chat_prompt(llm: LLM) -> list[int]:
    """The question as the model's own chat template puts it; as it stands where there is none."""
    tokenizer = llm.get_tokenizer()
    if not tokenizer.chat_template:
        ids: list[int] = tokenizer.encode(QUESTION)
        return ids
    from pagoda.engine.prompts import PromptReader

    reader = PromptReader(tokenizer, llm.engine.loop.max_model_len)
    return reader.read_chat(reader.render_chat([{"role": "user", "content": QUESTION}]))[1]


def measure(
    reference: LogitsSource, others: dict[str, LogitsSource], windows: list[list[int]]
) -> dict[str, list[WindowScores]]:
    """Window by window, all engines on each, so that no more than two sets of rows are ever held."""
    scores: dict[str, list[WindowScores]] = {REFERENCE: [], **{name: [] for name in others}}
    for index, window in enumerate(windows):
        token_ids = np.array(window, np.int32)
        truth = reference.logits(window)
        scores[REFERENCE].append(score(truth, truth, token_ids))
        for name, source in others.items():
            print(f"\rwindow {index + 1}/{len(windows)}: {name}".ljust(60), end="", flush=True)
            rows = source.logits(window)
            width = min(rows.shape[1], truth.shape[1])  # some files pad the vocabulary
            scores[name].append(score(truth[:, :width], rows[:, :width], token_ids))
    print()
    return scores


def print_results(results: dict[str, Summary], answers: dict[str, str]) -> None:
    ours = results["pagoda"].mean
    rows = [
        (
            name,
            f"{s.mean:.2e} ± {s.standard_error:.0e}",
            f"{s.median:.1e}",
            f"{s.percentile_99:.1e}",
            f"{s.agreement:.2%}",
            f"{s.perplexity:.3f}",
            f"{s.mean / ours:.3g}x" if ours and name != REFERENCE else "",
            answers.get(name, "")[:40],
        )
        for name, s in results.items()
    ]
    header = ("engine", "mean KL", "median", "99 %", "same best token", "perplexity", "KL / pagoda's", "answer")
    print_table("Divergence from float32, nats a token", header, rows)
    if "llama.cpp" in results:
        ratio = ours / results["llama.cpp"].mean
        met = "met" if ratio <= 1 / 3 and "Paris" in answers["pagoda"] else "missed"
        print(
            f"\ngoal: at most a third of llama.cpp's on the same file, and Paris: {met} (pagoda has {ratio:.2g} of it)"
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="name or path of a GGUF model (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=40, help="windows of text (default: %(default)s)")
    parser.add_argument("--length", type=int, default=512, help="tokens in a window (default: %(default)s)")
    parser.add_argument("--formats", nargs="*", default=list(LLAMA_FORMATS), choices=list(peers.LLAMA_TYPES))
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    model = ensure_model(args.model)
    with LLM(model, device="cpu", max_num_seqs=1, max_model_len=args.length) as llm:
        tokenizer = llm.get_tokenizer()
        prompt = chat_prompt(llm)
    windows = prose.windows(tokenizer.encode, args.windows, args.length)
    reference = TransformersLogits(peers.hugging_face(model), args.threads)
    others = dict(sources(model, args))
    results = {name: summarize(scores) for name, scores in measure(reference, others, windows).items()}
    answers = {
        name: tokenizer.decode(greedy(source, prompt, tokenizer.eos_ids))
        for name, source in {REFERENCE: reference, **others}.items()
    }
    for source in others.values():
        source.close()
    print(machine())
    print_results(results, answers)
    record = {name: {**asdict(s), "answer": answers[name]} for name, s in results.items()}
    text = hashlib.sha256(json.dumps(windows).encode()).hexdigest()
    written = write_json("cpu_quality", {"model": args.model, "text_sha256": text, "engines": record})
    print(f"written to {written}")


if __name__ == "__main__":
    main()
