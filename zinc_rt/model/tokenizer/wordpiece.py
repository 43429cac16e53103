"""WordPiece, BERT's tokenizer: words of lower-cased text without accents, each divided into the longest known
pieces.

Tokens that begin a word have a U+2581 first, as llama.cpp's converter writes them. Facts: llama.cpp
src/llama-vocab.cpp, `llm_tokenizer_wpm_session`.
"""

from __future__ import annotations

import unicodedata

from zinc_rt.model.tokenizer.vocabulary import Vocabulary

WORD_START = "\u2581"
_WHITE = "\t\n\v\f\r\x85"  # white space that Unicode does not classify as a separator
_REMOVED = ("Cc", "Cf", "Co")  # control, format and private-use characters, not unassigned ones
_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WordPiece:
    """The segmentation of a vocabulary. A word with a part that is not in the vocabulary is one unknown token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        self._unknown = vocabulary.roles.get("unk")
        self._longest = max(map(len, vocabulary.texts), default=1)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Return the ids of `text`. Without an unknown token, words that are not in the vocabulary are omitted."""
        return [id for word in split_words(text) for id in self._divide(word)]

    def _divide(self, word: str) -> list[int]:
        text, start, ids = WORD_START + word, 0, list[int]()
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), 0)
            if not end:
                return [] if self._unknown is None else [self._unknown]
            ids.append(self._ids[text[start:end]])
            start = end
        return ids


def split_words(text: str) -> list[str]:
    """Split text at white space, lower-case it, and remove accents and control characters. Punctuation, ASCII
    symbols and Chinese characters are separate words."""
    words = [""]
    for character in unicodedata.normalize("NFD", text):
        category = unicodedata.category(character)
        if character in _WHITE or category[0] == "Z":
            words.append("")
        elif character == "\ufffd" or category in _REMOVED or category[0] == "M":
            continue
        elif _is_separate(character, category):
            words += [character.lower(), ""]
        else:
            words[-1] += character.lower()
    return [word for word in words if word]


def _is_separate(character: str, category: str) -> bool:
    if category[0] == "P" or (category[0] == "S" and character < "\x7f"):
        return True
    return any(first <= ord(character) <= last for first, last in _CHINESE)
