"""How byte-level vocabularies cut a text into words before merging: the patterns behind each `tokenizer.ggml.pre`.

Each pattern cuts every piece left by the one before it into its matches and the gaps between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

from pagoda.core.errors import ModelFileError

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CASED = rf"{_LEAD}{_UPPER}*{_LOWER}+{{tail}}|{_LEAD}{_UPPER}+{_LOWER}*{{tail}}"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = f"{_CASED.replace('{tail}', '')}|\\p{{N}}|{_SYMBOLS}|{_SPACES}"
_CASED_CONTRACTED = _CASED.replace("{tail}", _CONTRACTION + "?")
_GPT4O = f"{_CASED_CONTRACTED}|\\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_ASCII_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_DEEPSEEK3_WORDS = (
    rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_DEEPSEEK3 = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3_WORDS)
# The letters of bicameral scripts, which is what this vocabulary calls a word.
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"(?<!\s)\s++\z",
    _EAST_ASIAN,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_DIGITS_APART = (r"\p{N}", _GPT2)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(?:IMGIMG)(?:[A-I]{1,4})Z",
    "[\\t\\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_SEED_CODER = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_UFAKZEKA = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_LINES = "[^\\n]+|\\n+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`ignore_merges`: a whole word found in the vocabulary is one token, whatever the merges say.
    `adds_bos`: the family begins every text with its first token unless the file says otherwise."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, to_bytes])


_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_PLAIN_QWEN2 = PreTokenizer((_QWEN2,))
_LLAMA_BPE = PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True)
_SPLIT_DIGITS = PreTokenizer(_DIGITS_APART)
_DEEPSEEK3_LLM = PreTokenizer(_DEEPSEEK3)
_PLAIN_GPT4O = PreTokenizer((_GPT4O,))
_PLAIN_BLOOM = PreTokenizer((_BLOOM,))
_GLM4 = PreTokenizer((_LLAMA3,), ignore_merges=True)
_PLAIN_BAILING = PreTokenizer((_BAILING,))


def _named(pre_tokenizer: PreTokenizer, *names: str) -> dict[str, PreTokenizer]:
    return dict.fromkeys(names, pre_tokenizer)


_BY_NAME: dict[str, PreTokenizer] = {
    **_named(PreTokenizer(_DEFAULT), "", "default"),
    **_named(_LLAMA_BPE, "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    **_named(_LLAMA_BPE, "jina-v5-nano"),
    **_named(PreTokenizer(_DEEPSEEK_LLM), "deepseek-llm"),
    **_named(PreTokenizer(_DEEPSEEK_CODER), "deepseek-coder"),
    **_named(_DEEPSEEK3_LLM, "deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
    **_named(PreTokenizer(_FALCON), "falcon"),
    **_named(_PLAIN_GPT2, "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat"),
    **_named(_PLAIN_GPT2, "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code"),
    **_named(_PLAIN_GPT2, "roberta-bpe", "a.x-4.0", "mellum", "modern-bert", "exaone4"),
    **_named(_SPLIT_DIGITS, "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"),
    **_named(_SPLIT_DIGITS, "mellum2"),
    **_named(_PLAIN_QWEN2, "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open"),
    **_named(_PLAIN_QWEN2, "megrez", "grok-2"),
    **_named(PreTokenizer((_LINES, _QWEN2)), "laguna"),
    **_named(PreTokenizer((_QWEN35,)), "qwen35"),
    **_named(PreTokenizer((_LLAMA3,)), "dbrx", "smaug-bpe", "chatglm-bpe"),
    **_named(_GLM4, "glm4", "glm5"),
    **_named(PreTokenizer((r"\p{N}{1,3}", _LLAMA3), ignore_merges=True), "minicpm5"),
    **_named(PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True), "tekken"),
    **_named(_PLAIN_GPT4O, "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
    **_named(PreTokenizer((_GPT4O,), ignore_merges=True), "granite-embed-multi-97m"),
    **_named(_PLAIN_BLOOM, "poro-chat", "bloom", "gpt3-finnish"),
    **_named(PreTokenizer((_BLOOM, r"\p{N}")), "viking"),
    **_named(PreTokenizer(_CHAMELEON, adds_bos=True), "chameleon"),
    **_named(_PLAIN_BAILING, "bailingmoe", "bailingmoe2", "llada-moe"),
    **_named(PreTokenizer((_SEED_CODER,)), "seed-coder"),
    **_named(PreTokenizer((_UFAKZEKA,)), "ufakzeka"),
}

PRE_TOKENIZER_NAMES = frozenset(name for name in _BY_NAME if name)


def pre_tokenizer_named(name: str) -> PreTokenizer:
    found = _BY_NAME.get(name)
    if found is None:
        raise ModelFileError(
            f"tokenizer.ggml.pre: {name[:64]!r} is not a known pre-tokenizer; known are "
            f"{', '.join(sorted(PRE_TOKENIZER_NAMES))}"
        )
    return found
