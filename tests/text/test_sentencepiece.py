"""Greedy merging by score, against the sentencepiece library on vocabularies that it trained itself."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.text import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece")

CORPUS = [
    "the cat sat on the mat and the hat",
    "a man a plan a canal panama",
    "----- ===== ..... aaaa aaaaaaaa",
    "über die brücke ging ein mädchen",
    "if x > 1: return x > 2",
    "to be or not to be that is the question",
] * 20


def trained(add_dummy_prefix: bool) -> object:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=add_dummy_prefix,
        split_by_whitespace=add_dummy_prefix,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def converted(processor: object, add_dummy_prefix: bool) -> Tokenizer:
    ids = range(processor.vocab_size())
    kind = {"is_unknown": 2, "is_control": 3, "is_unused": 5, "is_byte": 6}
    kinds = [next((value for test, value in kind.items() if getattr(processor, test)(i)), 1) for i in ids]
    return Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in ids],
            "tokenizer.ggml.scores": [processor.get_score(i) for i in ids],
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.add_space_prefix": add_dummy_prefix,
        }
    )


# Without `split_by_whitespace` the vocabulary has pieces that reach over a space.
PAIRS = [(trained(prefix), prefix) for prefix in (True, False)]
PAIRS_WITH_OURS = [(processor, converted(processor, prefix)) for processor, prefix in PAIRS]
texts = st.text(alphabet="aehntou -=.>1:x🚀é\n", max_size=60)


@settings(max_examples=300)
@given(st.sampled_from(PAIRS_WITH_OURS), texts)
def test_tokens_are_those_of_sentencepiece(pair: tuple[object, Tokenizer], text: str) -> None:
    processor, tokenizer = pair
    expected = processor.encode(text) if text else []
    assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == expected
    assert tokenizer.decode(expected) == text


@pytest.mark.parametrize("text", ["a" * 200, "-" * 333, " " * 99, "aa aa " * 50, "=a" * 100])
def test_runs_of_one_character(text: str) -> None:
    for processor, tokenizer in PAIRS_WITH_OURS:
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == processor.encode(text)


def test_names_of_control_tokens_in_a_text_are_text() -> None:
    for processor, tokenizer in PAIRS_WITH_OURS:
        tokens = tokenizer.encode("</s><s><unk>", add_special_tokens=False, parse_special=False)
        assert tokens == processor.encode("</s><s><unk>")
        assert not tokenizer.special_ids.intersection(tokens)


@pytest.mark.parametrize("pair", PAIRS_WITH_OURS, ids=["prefix", "no prefix"])
def test_the_text_of_a_token_is_what_it_decodes_to_behind_others(pair: tuple[object, Tokenizer]) -> None:
    tokenizer = pair[1]
    texts = [tokenizer.token_text(token_id) for token_id in range(tokenizer.vocab_size)]
    assert texts == [tokenizer.decode([token_id], continues_text=True) for token_id in range(tokenizer.vocab_size)]
    assert any(text.startswith(" ") for text in texts) and "\ufffd" in texts and "<unk>" in texts
