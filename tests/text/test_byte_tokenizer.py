from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.text import Tokenizer
from pagoda.text.byte_tokenizer import byte_tokenizer_parts

TOKENIZER = Tokenizer(byte_tokenizer_parts())


@given(st.text())
def test_a_text_is_its_bytes(text: str) -> None:
    try:
        expected = list(text.encode())
    except UnicodeEncodeError:
        return
    assert TOKENIZER.encode(text) == expected and TOKENIZER.decode(expected) == text


def test_nothing_ends_an_answer() -> None:
    assert TOKENIZER.vocab_size == 256 and not TOKENIZER.eos_ids and TOKENIZER.chat_template is None
