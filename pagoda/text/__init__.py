"""Text to tokens and back: tokenizers, chat templates, streamed detokenization, stop strings."""

from __future__ import annotations

from pagoda.text.chat_template import ChatTemplate
from pagoda.text.detokenizer import Detokenizer
from pagoda.text.fill_in import FillInFrame, FillInPrompt
from pagoda.text.special_tokens import FillInTokens, SpecialTokens
from pagoda.text.stop_strings import StopMatch, StopStep, StopStringMatcher
from pagoda.text.template_budget import TemplateLimits
from pagoda.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "FillInFrame",
    "FillInPrompt",
    "FillInTokens",
    "SpecialTokens",
    "StopMatch",
    "StopStep",
    "StopStringMatcher",
    "TemplateLimits",
    "Tokenizer",
]
