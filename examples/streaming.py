"""Two answers that grow side by side in one engine, and a third that is called off.

python examples/streaming.py [MODEL] [TOKENS]
"""

from __future__ import annotations

import asyncio
import sys

from pagoda import AsyncLLM, SamplingParams


async def tell(llm: AsyncLLM, name: str, prompt: str, num_tokens: int) -> None:
    shown = 0
    async for output in llm.generate(prompt, SamplingParams(seed=1, max_tokens=num_tokens), request_id=name):
        text = output.outputs[0].text
        print(f"{name}: {text[shown:]!r}")
        shown = len(text)
        if name == "impatient" and shown:
            await llm.abort(name)
    print(f"{name} ended by {output.outputs[0].finish_reason}")


async def run(model: str, num_tokens: int) -> None:
    llm = AsyncLLM(model)
    beginnings = {"tale": "Once upon a time", "recipe": "To bake bread, first", "impatient": "It was a dark"}
    await asyncio.gather(*(tell(llm, name, prompt, num_tokens) for name, prompt in beginnings.items()))
    llm.close()


def main(model: str = "smollm2", num_tokens: str = "12") -> None:
    asyncio.run(run(model, int(num_tokens)))


if __name__ == "__main__":
    main(*sys.argv[1:])
