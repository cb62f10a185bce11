"""Which tokens have a job: begin, end a turn, fill in the middle. Model files often leave out all but two of them,
so the others are found by the names that model families are known to use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

# Names that mean an end wherever they occur.
_END_NAMES = (
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
)
# Names that are also ordinary text (an HTML tag, a word in brackets): an end only where the file says "control".
_AMBIGUOUS_END_NAMES = ("</s>", "<eos>", "<EOT>", "_<EOT>", "▁<EOT>", "[EOT]", "[EOS]", "[e~[")

# In the "harmony" layouts these two pairs show that <|end|> closes a part of a message, not the message.
_END_IS_A_SEPARATOR_WITH = (("<|return|>", "<|call|>"), ("<|calls|>", "<|flush|>"))

_FILL_IN_NAMES: dict[str, tuple[str, ...]] = {
    "prefix": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "suffix": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "middle": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>"),
    "repository": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "file_separator": ("<|file_sep|>",),
}


@dataclass(frozen=True, slots=True)
class FillInTokens:
    """Tokens that frame a prompt whose middle is to be written; None where the vocabulary has no such token."""

    prefix: int | None = None
    suffix: int | None = None
    middle: int | None = None
    pad: int | None = None
    repository: int | None = None
    file_separator: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether a prompt can be framed with them."""
        return None not in (self.prefix, self.suffix, self.middle)

    def ids(self) -> list[int]:
        found = (self.prefix, self.suffix, self.middle, self.pad, self.repository, self.file_separator)
        return [token_id for token_id in found if token_id is not None]

    def end_ids(self) -> list[int]:
        """Tokens with which a model leaves the middle beside its ends of text: another file begins, or nothing."""
        found = (self.pad, self.repository, self.file_separator)
        return [token_id for token_id in found if token_id is not None]


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The tokens with a job. `prefix_ids` and `suffix_ids` are what `add_special_tokens` puts around a text."""

    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    unknown_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    fill_in: FillInTokens = field(default_factory=FillInTokens)


def find_end_of_generation(ids: Mapping[str, int], is_control: Callable[[int], bool]) -> frozenset[int]:
    """Ids of the tokens whose name says that the answer, or its turn, is over."""
    found = {name: ids[name] for name in _END_NAMES if name in ids}
    found |= {name: ids[name] for name in _AMBIGUOUS_END_NAMES if name in ids and is_control(ids[name])}
    if any(all(name in ids for name in pair) for pair in _END_IS_A_SEPARATOR_WITH):
        found.pop("<|end|>", None)
    return frozenset(found.values())


def find_fill_in(ids: Mapping[str, int], declared: Mapping[str, int] | None = None) -> FillInTokens:
    """Fill-in tokens that the file declares, completed by name."""
    chosen = dict(declared or {})
    for role, names in _FILL_IN_NAMES.items():
        if role not in chosen:
            match = _first_present(ids, names)
            if match is not None:
                chosen[role] = match
    return FillInTokens(**chosen)


def _first_present(ids: Mapping[str, int], names: Iterable[str]) -> int | None:
    return next((ids[name] for name in names if name in ids), None)
