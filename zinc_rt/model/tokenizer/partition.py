"""Cuts a text at the special tokens written in it.

Source: llama.cpp src/llama-vocab.cpp, `tokenizer_st_partition`: longest token first over the whole text, so a
long token wins against a shorter one that starts earlier. Control and unknown tokens count only where special
tokens are parsed; user-defined ones always.
"""

from __future__ import annotations

from zinc_rt.model.tokenizer.vocabulary import CONTROL, LSTRIP, RSTRIP, UNKNOWN, USER_DEFINED, Vocabulary

SPACE = " \t\n\v\f\r"  # isspace in the C locale

Fragment = str | int
"""Text still to be tokenized, or the id of a special token."""


class Partitioner:
    """Finds a vocabulary's special tokens in a text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = vocabulary.with_kind(CONTROL | USER_DEFINED | UNKNOWN)
        special.sort(key=lambda id: -len(vocabulary.texts[id].encode()))
        self._special = [(vocabulary.texts[id], id, vocabulary.kinds[id]) for id in special]

    def split(self, text: str, *, parse_special: bool) -> list[Fragment]:
        """The fragments of `text` in order, no empty ones."""
        fragments: list[Fragment] = [text] if text else []
        for token, id, kind in self._special:
            if token not in text or (not parse_special and kind & (CONTROL | UNKNOWN)):
                continue
            after: list[Fragment] = []
            for fragment in fragments:
                if isinstance(fragment, str):
                    after += _cut(fragment, token, id, kind)
                else:
                    after.append(fragment)
            fragments = after
        return fragments


def _cut(text: str, token: str, id: int, kind: int) -> list[Fragment]:
    pieces: list[Fragment] = []
    first, *rest = text.split(token)
    if kind & LSTRIP and rest:
        first = first.rstrip(SPACE)
    if first:
        pieces.append(first)
    for at, piece in enumerate(rest, 1):
        pieces.append(id)
        if kind & RSTRIP:
            piece = piece.lstrip(SPACE)
        if kind & LSTRIP and at < len(rest):
            piece = piece.rstrip(SPACE)
        if piece:
            pieces.append(piece)
    return pieces
