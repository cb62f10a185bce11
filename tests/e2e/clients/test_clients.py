"""Clients that people use, unchanged: each completes a chat and a stream with the default model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.conftest import KEY

pytestmark = pytest.mark.slow
QUESTION = "What is the capital of France?"
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
TOOL: Any = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


def needed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install pagoda[clients]")


@pytest.fixture(scope="module")
def openai_client(base_url: str) -> Any:
    return needed("openai").OpenAI(base_url=base_url, api_key=KEY)


def test_openai_chat(openai_client: Any):
    answer = openai_client.chat.completions.create(model="smollm2", messages=MESSAGES, temperature=0, max_tokens=32)
    assert "Paris" in answer.choices[0].message.content and answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_openai_stream(openai_client: Any):
    options = {"include_usage": True}
    *chunks, last = openai_client.chat.completions.create(
        model="smollm2", messages=MESSAGES, temperature=0, max_tokens=32, stream=True, stream_options=options
    )
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop" and last.usage.completion_tokens > 0


def test_openai_stream_helper(openai_client: Any):
    with openai_client.chat.completions.stream(model="smollm2", messages=MESSAGES, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert text == stream.get_final_completion().choices[0].message.content and "Paris" in text


def test_openai_text(openai_client: Any):
    answer = openai_client.completions.create(model="smollm2", prompt="The capital of France is", temperature=0)
    assert "Paris" in answer.choices[0].text
    assert [model.id for model in openai_client.models.list()] == ["smollm2"]


def test_openai_errors_have_their_own_types(openai_client: Any, base_url: str):
    import openai

    with pytest.raises(openai.BadRequestError, match="temperature"):
        openai_client.chat.completions.create(model="smollm2", messages=MESSAGES, temperature=-1)
    with pytest.raises(openai.BadRequestError, match="tools"):
        openai_client.chat.completions.create(model="smollm2", messages=MESSAGES, tools=[TOOL])
    with pytest.raises(openai.NotFoundError, match="another"):
        openai_client.chat.completions.create(model="another", messages=MESSAGES)
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=base_url, api_key="wrong").models.list()


def test_openai_async(base_url: str):
    async def ask() -> str:
        async with needed("openai").AsyncOpenAI(base_url=base_url, api_key=KEY) as client:
            stream = await client.chat.completions.create(
                model="smollm2", messages=MESSAGES, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert "Paris" in asyncio.run(ask())


@pytest.fixture(scope="module")
def langchain_chat(base_url: str) -> Any:
    return needed("langchain_openai").ChatOpenAI(model="smollm2", base_url=base_url, api_key=KEY, temperature=0)


def test_langchain_chat(langchain_chat: Any):
    answer = langchain_chat.invoke([("system", "Answer in one sentence."), ("human", QUESTION)])
    assert "Paris" in answer.content and answer.usage_metadata["output_tokens"] > 0


def test_langchain_stream(langchain_chat: Any):
    chunks = list(langchain_chat.stream(QUESTION))
    assert "Paris" in "".join(chunk.content for chunk in chunks) and len(chunks) > 3


def test_langchain_batch(langchain_chat: Any):
    assert all("Paris" in answer.content for answer in langchain_chat.batch([QUESTION] * 3))


def test_langchain_embeddings(base_url: str):
    """It sends up to a thousand texts in one call."""
    model = needed("langchain_openai").OpenAIEmbeddings(
        model="smollm2", base_url=base_url, api_key=KEY, check_embedding_ctx_length=False
    )
    vectors = model.embed_documents([f"{number % 40} rivers" for number in range(400)])
    assert len(vectors) == 400 and vectors[:40] == vectors[360:] and vectors[0] != vectors[1]


@pytest.fixture(scope="module")
def litellm_options(base_url: str) -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network when imported
    needed("litellm").telemetry = False
    return {"model": "openai/smollm2", "api_base": base_url, "api_key": KEY, "messages": MESSAGES, "temperature": 0}


def test_litellm_chat(litellm_options: Any):
    answer = needed("litellm").completion(**litellm_options, max_tokens=32)
    assert "Paris" in answer.choices[0].message.content and answer.usage.completion_tokens > 0


def test_litellm_stream(litellm_options: Any):
    chunks = list(needed("litellm").completion(**litellm_options, stream=True))
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@pytest.fixture(scope="module")
def llm_folder(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Path:
    needed("llm")
    folder = tmp_path_factory.mktemp("llm")
    model = f"- model_id: pagoda\n  model_name: smollm2\n  api_base: {base_url}\n  api_key_name: pagoda\n"
    (folder / "extra-openai-models.yaml").write_text(model)
    return folder


@pytest.mark.parametrize("options", [["--no-stream"], []], ids=["chat", "stream"])
def test_llm_answer(llm_folder: Path, options: list[str]):
    command = [sys.executable, "-m", "llm", "-m", "pagoda", "--key", KEY, "-o", "temperature", "0", *options]
    done = subprocess.run(
        [*command, QUESTION],
        env={**os.environ, "LLM_USER_PATH": str(llm_folder)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
