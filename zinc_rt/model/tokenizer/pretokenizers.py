r"""Pre-tokenizers: split text into words before merging, one row per `tokenizer.ggml.pre` value."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from zinc_rt.host.errors import UnsupportedError

_ASCII_RUN = re.compile("[0-9]+")


def _split_at(text: str, points: list[int]) -> list[str]:
    edges = sorted({0, len(text), *points})
    return [text[start:end] for start, end in pairwise(edges)]


def _find_number_runs(text: str) -> list[tuple[int, int]]:
    """Yield the start and end of each run of Unicode numbers (categories Nd, Nl, No)."""
    if text.isascii():
        return [match.span() for match in _ASCII_RUN.finditer(text)]
    runs: list[tuple[int, int]] = []
    start = None
    for index, char in enumerate(text):
        if unicodedata.category(char)[0] == "N":
            start = index if start is None else start
        elif start is not None:
            runs.append((start, index))
            start = None
    if start is not None:
        runs.append((start, len(text)))
    return runs


def group_numbers(text: str) -> list[str]:
    """Split numbers like afmoe and tiny_aya: each run becomes one or two leading digits, then groups of three."""
    points: list[int] = []
    for start, end in _find_number_runs(text):
        # Only right edges are cuts: the leading group keeps the text before it, for the next stage to cut off.
        points += range(start + ((end - start) % 3 or 3), end + 1, 3)
    return _split_at(text, points)


def group_ascii_digits(text: str) -> list[str]:
    r"""Split numbers like superbpe: runs are separate words, cut before each point with a multiple of three
    ASCII digits left."""
    points: list[int] = []
    for start, end in _find_number_runs(text):
        points += [start, end]
        for match in _ASCII_RUN.finditer(text, start, end):
            points += range(match.end() - 3, match.start() - 1, -3)
    return _split_at(text, points)


Stage = str | Callable[[str], list[str]]
"""An Oniguruma expression whose matches and gaps become pieces, or a function that cuts a piece into pieces."""


def _format_code_points(ranges: str) -> str:
    """Return the content of a character class for hexadecimal code points and ranges: "41-5a b5"."""
    return re.sub("[0-9a-f]+", lambda code: rf"\x{{{code[0]}}}", ranges).replace(" ", "")


SUFFIX = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
KANA_OR_HAN = f"[{_format_code_points('4e00-9fa5 3040-309f 30a0-30ff')}]+"
SPACES = r"\s+(?!\S)|\s+"

# unicode_cpt_is_han in llama.cpp src/unicode.cpp
HAN = (
    r"\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}"
    r"\x{2b820}-\x{2ceaf}\x{2ceb0}-\x{2ebef}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
)

GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{SPACES}"


def _make_cl100k_pattern(
    *,
    suffix: str = SUFFIX + "|",
    letters: str = r"\p{L}+",
    digits: str = r"\p{N}",
    symbols: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    newlines: str = r"\s*[\r\n]+",
) -> str:
    """Return the cl100k pattern that most vocabularies share: suffix, letters with one leading mark, digits,
    symbols, spaces."""
    return rf"{suffix}[^\r\n\p{{L}}\p{{N}}]?{letters}|{digits}|{symbols}|{newlines}|{SPACES}"


def _make_o200k_pattern(upper: str, lower: str, *, suffix: str, digits: str) -> str:
    """Return the o200k pattern: a word ends where lower case changes to upper; `upper` and `lower` are character
    classes."""
    mark = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{mark}{upper}*{lower}+{suffix}|{mark}{upper}+{lower}*{suffix}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{SPACES}"
    )


def _make_deepseek3_pattern(symbols_tail: str = r"[\r\n]*", newlines: str = r"\s*[\r\n]+") -> str:
    return (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
        rf"|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+{symbols_tail}|{newlines}|{SPACES}"
    )


ASCII_UPPER_OR_OTHER = r"[\p{L}&&[^a-z]]"
ASCII_LOWER_OR_OTHER = r"[\p{L}&&[^A-Z]]"
LETTER_OR_MARK = r"[\p{L}\p{M}]"
BLOOM = rf" ?[^(\s|.,!?{_format_code_points('2026 3002 ff0c 3001 964 6d4 60c')})]+"

# The Latin, Greek, Cyrillic, ... letters with case that DeepSeek-LLM's tokenizer.json lists.
DEEPSEEK_LETTERS = _format_code_points(
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a "
    "38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf "
    "1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d "
    "1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 "
    "1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f "
    "2145-2149 214e 2183 2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f "
    "a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 "
    "104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943"
)
DEEPSEEK_CJK = rf"[{_format_code_points('4e00-9fa5 800-4e00 ac00-d7ff')}&&[^\s]]+"

SPLITS: dict[str, tuple[Stage, ...]] = {
    "default": (r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt2": (GPT2,),
    "starcoder": (r"\p{N}", GPT2),
    "falcon": (r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"),
    "chameleon": (
        "<sentinel:[0-9]+>",
        "IMGIMG[A-I]{1,4}Z",
        r"[\t\n]|    |  ",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        GPT2,
    ),
    "llama3": (_make_cl100k_pattern(digits=r"\p{N}{1,3}"),),
    "jais2": (
        rf"{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
        + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
        + r"|\s{1,2}(?!\S)|\s",
    ),
    "qwen2": (_make_cl100k_pattern(),),
    "qwen35": (_make_cl100k_pattern(letters=LETTER_OR_MARK + "+", symbols=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),),
    "ufakzeka": (_make_cl100k_pattern(suffix=""),),
    "laguna": (r"[^\n]+|\n+", _make_cl100k_pattern()),
    "seed-coder": (_make_cl100k_pattern(symbols=r" ?[^\s\p{L}\p{N}\r\n]+"),),
    "bailingmoe": (
        _make_cl100k_pattern(suffix="'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|", newlines=r"\s*[\r\n]"),
    ),
    "exaone-moe": (
        _make_cl100k_pattern(
            letters=r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            symbols=r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
            newlines=r"\s*[\r\n]",
        ),
    ),
    "minicpm5": (r"\p{N}{1,3}", _make_cl100k_pattern(digits=r"\p{N}+")),
    "deepseek-llm": (
        r"[\r\n]",
        rf"\s?[{DEEPSEEK_LETTERS}]+",
        r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3001}\x{3002}]+",
        r"(?<!\s)\s+\z",
        DEEPSEEK_CJK,
        r"\p{N}+",
    ),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"),
    "deepseek-v3": (r"\p{N}{1,3}", KANA_OR_HAN, _make_deepseek3_pattern()),
    "spark2_5": (
        r"\p{N}{1,3}",
        KANA_OR_HAN,
        _make_deepseek3_pattern(symbols_tail="", newlines=r"[\r\n]"),
        r"\p{N}",
    ),
    "afmoe": (
        group_numbers,
        # llama.cpp writes U+8C48 where the model's own list has its look-alike U+F900.
        r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{ff65}-\x{ff9f}"
        r"\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f}\x{aa60}-\x{aa7f}"
        r"\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+",
        _make_deepseek3_pattern(),
    ),
    "youtu": (
        r"[\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+"
        r"|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}"
        r"\x{fe30}-\x{fe4f}]+"
        rf"|[\x{{3105}}-\x{{312f}}]+|{KANA_OR_HAN}",
        _make_o200k_pattern(LETTER_OR_MARK, LETTER_OR_MARK, suffix=SUFFIX + "?", digits=r"\p{N}"),
    ),
    "tekken": (_make_o200k_pattern(ASCII_UPPER_OR_OTHER, ASCII_LOWER_OR_OTHER, suffix="", digits=r"\p{N}"),),
    "gpt-4o": (
        _make_o200k_pattern(ASCII_UPPER_OR_OTHER, ASCII_LOWER_OR_OTHER, suffix=SUFFIX + "?", digits=r"\p{N}{1,3}"),
    ),
    "granite-embed-multi": (
        _make_o200k_pattern(
            r"[\p{L}\p{M}&&[^a-z]]",
            r"[\p{L}\p{M}&&[^A-Z]]",
            suffix=SUFFIX + "?",
            digits=r"\p{N}{1,3}",
        ),
    ),
    "tiny-aya": (
        group_numbers,
        _make_o200k_pattern(LETTER_OR_MARK, LETTER_OR_MARK, suffix=SUFFIX + "?", digits=r"\p{N}{1,3}"),
    ),
    "kimi-k2": (
        rf"[{HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{HAN}]]+{SUFFIX}?|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{SPACES}",
    ),
    "superbpe": (group_ascii_digits,),
    "bloom": (BLOOM,),
    "viking": (BLOOM, r"\p{N}"),
    "lines": (r"[^\n]+|\n+",),
}


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """The settings of one or more `tokenizer.ggml.pre` names."""

    names: tuple[str, ...]
    split: str  # a key of SPLITS
    clean_spaces: bool = False  # llama.cpp's detokenizer drops spaces before ?!., and some apostrophes
    ignore_merges: bool = False  # a word that is a token as a whole is not merged from its bytes
    add_bos: bool = False  # if the file does not specify it
    add_sep: bool = False
    byte_level: bool = True  # False: raw UTF-8 with <0xXX> fallback
    escape_spaces: bool = False  # U+0020 is written U+2581
    whole_newlines: bool = False  # a run of \n that is one token stays one
    force_bos: bool = False


PRES: tuple[Pretokenizer, ...] = (
    Pretokenizer(("default",), "default", clean_spaces=True),
    Pretokenizer(("minicpm5",), "minicpm5", clean_spaces=True, ignore_merges=True),
    Pretokenizer(
        (
            "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
            "jina-v5-nano",
        ),
        "llama3", clean_spaces=True, ignore_merges=True, add_bos=True,
    ),
    Pretokenizer(("deepseek-llm",), "deepseek-llm"),
    Pretokenizer(("deepseek-coder",), "deepseek-coder"),
    Pretokenizer(("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), "deepseek-v3"),
    Pretokenizer(("spark2_5",), "spark2_5"),
    Pretokenizer(("youtu",), "youtu", ignore_merges=True),
    Pretokenizer(("falcon",), "falcon", clean_spaces=True),
    Pretokenizer(("starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), "starcoder",
    clean_spaces=True),
    Pretokenizer(("command-r", "smollm"), "starcoder"),
    Pretokenizer(
        (
            "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
            "modern-bert", "mpt", "olmo", "jais", "exaone4",
        ),
        "gpt2", clean_spaces=True,
    ),
    Pretokenizer(("trillion", "granite-docling"), "gpt2"),
    Pretokenizer(("jina-v1-en", "jina-v2-code", "roberta-bpe"), "gpt2", clean_spaces=True, add_sep=True),
    Pretokenizer(("jais-2",), "jais2", clean_spaces=True),
    Pretokenizer(
        ("gemma4", "granite-embed-multi-311m"), "lines", clean_spaces=True, byte_level=False, escape_spaces=True,
        whole_newlines=True, force_bos=True,
    ),
    Pretokenizer(("sarvam-moe",), "lines", byte_level=False, escape_spaces=True),
    Pretokenizer(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"), "qwen2"),
    Pretokenizer(("megrez", "stablelm2"), "qwen2", clean_spaces=True),
    Pretokenizer(("qwen35",), "qwen35"),
    Pretokenizer(("dbrx", "smaug-bpe", "chatglm-bpe"), "llama3", clean_spaces=True),
    Pretokenizer(("glm4",), "llama3", clean_spaces=True, ignore_merges=True),
    Pretokenizer(("poro-chat",), "bloom"),
    Pretokenizer(("bloom", "gpt3-finnish"), "bloom", clean_spaces=True),
    Pretokenizer(("viking",), "viking"),
    Pretokenizer(("tekken",), "tekken", ignore_merges=True, add_bos=True),
    Pretokenizer(("chameleon",), "chameleon", add_bos=True),
    Pretokenizer(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), "gpt-4o"),
    Pretokenizer(("granite-embed-multi-97m",), "granite-embed-multi", ignore_merges=True),
    Pretokenizer(("tiny_aya", "cohere2moe"), "tiny-aya"),
    Pretokenizer(("superbpe",), "superbpe"),
    Pretokenizer(("bailingmoe", "bailingmoe2", "llada-moe"), "bailingmoe"),
    Pretokenizer(("seed-coder",), "seed-coder"),
    Pretokenizer(("exaone-moe",), "exaone-moe", clean_spaces=True),
    Pretokenizer(("kimi-k2",), "kimi-k2"),
    Pretokenizer(("ufakzeka",), "ufakzeka"),
    Pretokenizer(("afmoe",), "afmoe"),
    Pretokenizer(("laguna",), "laguna"),
)  # fmt: skip

_BY_NAME = {name: pre for pre in PRES for name in pre.names}


def find_pretokenizer(name: str) -> Pretokenizer:
    """Return the row for a `tokenizer.ggml.pre` value. Raise UnsupportedError, listing every known name, if there
    is no such row.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise UnsupportedError(
        f"tokenizer.ggml.pre is {name!r}: unknown pre-tokenizer; expected one of: {', '.join(sorted(_BY_NAME))}",
        next="use a file whose tokenizer.ggml.pre is one of these names",
    )
