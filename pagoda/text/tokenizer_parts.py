"""What a reader of tokenizer files hands over, whatever the format: the parts that `Tokenizer` is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagoda.text.encoders import TextEncoder
from pagoda.text.special_tokens import SpecialTokens
from pagoda.text.token_table import TokenTable


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """`strips_leading_space`: a text decodes without its first space, which encoding put there.
    `template_variables`: names such as `bos_token` that chat templates expect, with their text."""

    encoder: TextEncoder
    table: TokenTable
    special: SpecialTokens
    ids: Mapping[str, int]
    strips_leading_space: bool
    chat_template: str | None = None
    template_variables: Mapping[str, str] = field(default_factory=dict)
