"""Small vocabularies for tiny models: a byte-level BPE, a SentencePiece-style one, and gemma4's BPE over
raw text.

The merges are learned from one paragraph. English prompts take several tokens per line, and every text can
be tokenized.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

from zinc_rt.host.errors import UsageError

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6  # llama_token_type in include/llama.h
SPACE = "▁"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = """The quick brown fox jumps over the lazy dog while the other dogs are asleep in the warm sun.
A small model says little, but what it says is enough to test that a token, a word and a sentence come out whole.
Numbers such as 1, 23, 456 and 7890 are read one digit at a time; so are names like Ada, Grace and Edsger.
If the answer is wrong in the first layer, it is wrong in the last layer too: look for the first place they part.
for i in range(10):
    print(i, "hello world")
"""


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    """The tokenizer.* metadata of a GGUF file."""

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    extra: dict[str, object]  # further tokenizer keys, with the part after "tokenizer."
    merges: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


def list_byte_characters() -> list[str]:
    """Return the printable character for each byte in byte-level BPE (openai/gpt-2, encoder.py)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]


def _learn(words: list[tuple[str, ...]], count: int) -> list[tuple[str, str]]:
    """Learn at most `count` merges: always the most frequent pair, ties by text, until no pair is left."""
    merges: list[tuple[str, str]] = []
    counted = Counter(words)
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in counted.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged: Counter[tuple[str, ...]] = Counter()
        for word, times in counted.items():
            merged[_merge(word, best)] += times
        counted = merged
    return merges


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return tuple(out)


def _split_words(space: str) -> list[tuple[str, ...]]:
    return [tuple(space + word) for line in TEXT.splitlines() for word in line.split()]


def _merge_results(merges: list[tuple[str, str]], known: list[str]) -> list[str]:
    """Return the new tokens without duplicates, because two merges can have the same text."""
    return [text for text in dict.fromkeys(left + right for left, right in merges) if text not in set(known)]


def _pad_vocabulary(tokens: list[str], types: list[int], size: int) -> tuple[list[str], list[int]]:
    if len(tokens) > size:
        raise UsageError(f"a vocabulary of {size} tokens is too small; this kind needs at least {len(tokens)}")
    unused = [f"[PAD{index}]" for index in range(len(tokens), size)]
    return tokens + unused, types + [UNUSED] * len(unused)


def build_byte_level(
    size: int, *, pre: str, special: tuple[str, ...], bos: str | None, eos: str, chat: bool
) -> TinyVocabulary:
    """Build a vocabulary of 256 bytes, learned merges, then `special`; `bos` None: no BOS token is added."""
    if size < 256 + len(special):
        raise UsageError(f"a byte-level vocabulary needs at least {256 + len(special)} tokens, got {size}")
    bytes_ = list_byte_characters()
    merges = _learn(_split_words(bytes_[0x20]), size - 256 - len(special))
    texts = bytes_ + _merge_results(merges, bytes_) + list(special)
    types = [NORMAL] * (len(texts) - len(special)) + [CONTROL] * len(special)
    tokens, types = _pad_vocabulary(texts, types, size)
    extra: dict[str, object] = {"ggml.eos_token_id": tokens.index(eos), "ggml.add_bos_token": bos is not None}
    if bos is not None:
        extra["ggml.bos_token_id"] = tokens.index(bos)
    if chat:
        extra["chat_template"] = CHATML
    return TinyVocabulary("gpt2", pre, tokens, types, extra, merges=[f"{left} {right}" for left, right in merges])


def _list_characters() -> list[str]:
    return sorted({*TEXT, SPACE} - {" ", "\n"})


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def build_sentencepiece(
    size: int, *, first: tuple[str, ...], special: tuple[str, ...], bos: str, eos: str, space_prefix: bool
) -> TinyVocabulary:
    """Build a vocabulary of `first` (with <unk>), 256 byte tokens, pieces by decreasing score, characters,
    `special`."""
    room = size - len(first) - 256 - len(_list_characters()) - len(special)
    pieces = _merge_results(_learn(_split_words(SPACE), max(0, room)), _list_characters())
    body = pieces + _list_characters()
    texts = [*first, *BYTES, *body, *special]
    types = [UNKNOWN if text == "<unk>" else CONTROL for text in first]
    types += [BYTE] * 256 + [NORMAL] * len(body) + [CONTROL] * len(special)
    scores = [0.0] * (len(first) + 256) + [-float(index) for index in range(len(body))]
    tokens, types = _pad_vocabulary(texts, types, size)
    scores += [-1000.0] * (size - len(scores))
    extra: dict[str, object] = {
        "ggml.bos_token_id": tokens.index(bos),
        "ggml.eos_token_id": tokens.index(eos),
        "ggml.unknown_token_id": tokens.index("<unk>"),
        "ggml.add_bos_token": True,
        "ggml.add_space_prefix": space_prefix,
    }
    return TinyVocabulary("llama", "default", tokens, types, extra, scores=scores)


def build_gemma4(size: int) -> TinyVocabulary:
    """Build a vocabulary of gemma4's BPE: raw characters, spaces as U+2581, runs of newlines as one token,
    byte tokens for the rest."""
    first, special = ["<pad>", "<eos>", "<bos>", "<unk>"], ["<|turn>", "<turn|>"]
    characters = ["\n", "\n\n", *_list_characters()]
    room = size - len(first) - 256 - len(characters) - len(special)
    merges = _learn(_split_words(SPACE), max(0, room))
    body = characters + _merge_results(merges, characters)
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN] + [BYTE] * 256 + [NORMAL] * len(body) + [CONTROL] * len(special)
    tokens, types = _pad_vocabulary([*first, *BYTES, *body, *special], types, size)
    extra: dict[str, object] = {
        "ggml.bos_token_id": 2,
        "ggml.eos_token_id": 1,
        "ggml.unknown_token_id": 3,
        "ggml.padding_token_id": 0,
        "ggml.add_bos_token": True,
        "ggml.add_space_prefix": False,
    }
    merges_text = [f"{left} {right}" for left, right in merges]
    return TinyVocabulary("gemma4", "", tokens, types, extra, merges=merges_text, scores=[0.0] * size)


def build_wordpiece(size: int) -> TinyVocabulary:
    """Build BERT's vocabulary in lower case: U+2581 and a beginning of a word, and continuations without it."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word.lower() for word in TEXT.split()})
    characters = sorted({*"".join(words), *"abcdefghijklmnopqrstuvwxyz0123456789"})
    pieces = dict.fromkeys([*(SPACE + text for text in characters), *characters])
    pieces |= dict.fromkeys([*(SPACE + word for word in words if word.isalnum()), "ing", "er", "es", "ed"])
    texts = [*special, *pieces]
    if size < len(texts):
        raise UsageError(f"a WordPiece vocabulary needs at least {len(texts)} tokens, got {size}")
    types = [CONTROL] * len(special) + [NORMAL] * (len(texts) - len(special))
    tokens, types = _pad_vocabulary(texts, types, size)
    roles = {"bos": 2, "cls": 2, "unknown": 1, "seperator": 3, "padding": 0, "mask": 4}  # llama.cpp's spelling
    extra: dict[str, object] = {f"ggml.{role}_token_id": id for role, id in roles.items()}
    return TinyVocabulary("bert", "default", tokens, types, extra | {"ggml.token_type_count": 2})


LLAMA_SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
HARMONY_SPECIAL = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|return|>",
    "<|constrain|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|call|>",
)
CHATML_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


RANK_TEMPLATE = (
    "<|im_start|>system\nAnswer yes or no.<|im_end|>\n<|im_start|>user\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n"
)


def build_qwen3rank(size: int) -> TinyVocabulary:
    """Build Qwen 3's vocabulary with the template of a reranker."""
    plain = build_vocabulary("qwen2", size)
    extra = plain.extra | {"chat_template.rerank": RANK_TEMPLATE, "chat_templates": ["rerank"]}
    return replace(plain, extra=extra)


def build_vocabulary(kind: str, size: int) -> TinyVocabulary:
    """Build the vocabulary of a row of VOCABULARIES."""
    return VOCABULARIES[kind](size)


VOCABULARIES = {
    "llama-bpe": lambda size: build_byte_level(
        size, pre="llama-bpe", special=LLAMA_SPECIAL, bos=LLAMA_SPECIAL[0], eos=LLAMA_SPECIAL[1], chat=False
    ),
    "qwen2": lambda size: build_byte_level(
        size, pre="qwen2", special=CHATML_SPECIAL, bos=None, eos="<|im_end|>", chat=True
    ),
    "qwen3rank": build_qwen3rank,
    "qwen35": lambda size: build_byte_level(
        size, pre="qwen35", special=CHATML_SPECIAL, bos=None, eos="<|im_end|>", chat=True
    ),
    "deepseek-v3": lambda size: build_byte_level(
        size,
        pre="deepseek-v3",
        special=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        chat=False,
    ),
    "gpt-4o": lambda size: build_byte_level(
        size, pre="gpt-4o", special=HARMONY_SPECIAL, bos="<|startoftext|>", eos="<|return|>", chat=False
    ),
    "tekken": lambda size: build_byte_level(
        size,
        pre="tekken",
        special=("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
        bos="<s>",
        eos="</s>",
        chat=False,
    ),
    "gpt-2": lambda size: build_byte_level(
        size, pre="gpt-2", special=("<|endoftext|>",), bos=None, eos="<|endoftext|>", chat=False
    ),
    "llama": lambda size: build_sentencepiece(
        size,
        first=("<unk>", "<s>", "</s>"),
        special=("<|endoftext|>", "<|user|>", "<|end|>"),
        bos="<s>",
        eos="</s>",
        space_prefix=True,
    ),
    "gemma": lambda size: build_sentencepiece(
        size,
        first=("<pad>", "<eos>", "<bos>", "<unk>"),
        special=("<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        eos="<eos>",
        space_prefix=False,
    ),
    "gemma4": build_gemma4,
    "bert": build_wordpiece,
}
