"""Record the output of llama.cpp's tokenizer for some texts, with a model's own vocabulary."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import Any

ROOM = 4096  # tokens, and bytes of text: some thirty times what TEXTS need

# Each has shown a difference between two tokenizers somewhere.
TEXTS = (
    "Hello world!",
    " leading space",
    "  two  spaces ",
    "The quick brown fox jumps over the lazy dog.",
    "I'm fine, THEY'LL see 3.14159 and 1000000",
    "café naïve über",
    "e\u0301 combining, \u00a0no-break, \u200bzero width",
    "日本語 😀👩‍👩‍👧 tail",
    "def main(args):\n    for i in range(10):\n\tprint(i)\n\n\n",
    "CR\r\nLF \t tab   \n \n end",
    "<|im_start|>user<|im_end|><bos><end_of_turn>",
    "ΑΒΓ абв العربية हिन्दी 한국어",
)


def tokenize_texts(llama: ModuleType, vocab: Any, texts: Sequence[str] = TEXTS) -> list[dict[str, Any]]:
    """Return the ids of each text without added special tokens (`plain`) and with them (`special`; special
    tokens in the text are parsed), and the text detokenized from `plain`. Returns nothing if llama.cpp has no
    tokenizer for the vocabulary.
    """
    if llama.llama_vocab_type(vocab) == llama.LLAMA_VOCAB_TYPE_NONE:
        return []
    rows = []
    for text in texts:
        plain = _tokenize(llama, vocab, text, special=False)
        rows.append({
            "text": text,
            "plain": plain,
            "special": _tokenize(llama, vocab, text, special=True),
            "detok_plain": _detokenize(llama, vocab, plain),
        })  # fmt: skip
    return rows


def _tokenize(llama: ModuleType, vocab: Any, text: str, *, special: bool) -> list[int]:
    raw, ids = text.encode(), (llama.llama_token * ROOM)()
    count = llama.llama_tokenize(vocab, raw, len(raw), ids, ROOM, special, True)
    assert count >= 0, "more tokens than the buffer can hold"
    return list(ids[:count])


def _detokenize(llama: ModuleType, vocab: Any, ids: Sequence[int]) -> str:
    buffer = ctypes.create_string_buffer(ROOM)
    argument = (llama.llama_token * len(ids))(*ids)
    size = llama.llama_detokenize(vocab, argument, len(ids), buffer, ROOM, False, True)
    assert size >= 0, "more text than the buffer can hold"
    return buffer.raw[:size].decode(errors="replace")
