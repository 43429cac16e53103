"""BPE: merge by rank, at byte level or over raw UTF-8, with the `tokenizers` package."""

from __future__ import annotations

import re

import tokenizers
from tokenizers import models, pre_tokenizers

from zinc_rt.model.tokenizer import fields
from zinc_rt.model.tokenizer.fields import Metadata, make_metadata_error
from zinc_rt.model.tokenizer.pretokenizers import SPLITS, Pretokenizer
from zinc_rt.model.tokenizer.vocabulary import PREFIX, Vocabulary

_LINES = re.compile(r"[^\n]+|\n+")
LONG_TEXT = 2048  # minimum length of a text for a call that releases the interpreter lock
_MERGES_KEY = PREFIX + "merges"


def _make_alphabet() -> dict[str, int]:
    """Return GPT-2's alphabet: the byte represented by each of 256 printable characters.

    Printable Latin-1 characters represent themselves; the others are numbered from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


BYTE_OF_CHAR = _make_alphabet()


def decode_byte_level(token: str) -> bytes:
    """Return the bytes of a byte-level token. A token with a character outside the alphabet yields its UTF-8."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return token.encode()


class BPE:
    """A vocabulary with ranked merges. `encode` expects text without special tokens."""

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata, pre: Pretokenizer) -> None:
        self._pre = pre
        self._ids = vocabulary.ids
        needs_merges = "kimi-k2" not in pre.names  # llama.cpp reads such a file without merges
        merges = _read_merges(metadata, vocabulary, required=needs_merges)
        try:
            model = models.BPE(
                vocabulary.ids,
                merges,
                ignore_merges=pre.ignore_merges,
                byte_fallback=not pre.byte_level,
            )
        except Exception as error:  # the package raises bare Exception for a bad merge list
            raise make_metadata_error(f"{_MERGES_KEY}: {error}") from None
        self._rust = tokenizers.Tokenizer(model)
        stages = SPLITS[pre.split] if not pre.whole_newlines else ()
        self._head = [stage for stage in stages if not isinstance(stage, str)]
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(tokenizers.Regex(stage), "isolated") for stage in stages if isinstance(stage, str)
        ]
        if pre.byte_level:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
            missing = sum(char not in vocabulary.ids for char in BYTE_OF_CHAR)
            if missing:
                vocabulary.warnings.append(
                    f"{missing} of 256 bytes have no token: text with such bytes is not encoded completely"
                )
        if steps:
            self._rust.pre_tokenizer = pre_tokenizers.Sequence(steps)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Encode `text` to token ids."""
        if self._pre.escape_spaces:
            text = text.replace(" ", "\u2581")
        if self._pre.whole_newlines:
            return self._encode_lines(text)
        pieces = [text]
        for stage in self._head:
            pieces = [part for piece in pieces for part in stage(piece)]
        return [id for piece in pieces for id in self._encode_piece(piece)]

    def _encode_piece(self, text: str) -> list[int]:
        if len(text) < LONG_TEXT:
            return self._rust.encode(text, add_special_tokens=False).ids
        # Other threads run during this call.
        return self._rust.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _encode_lines(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in _LINES.findall(text):
            if piece[0] == "\n" and piece in self._ids:
                ids.append(self._ids[piece])
            else:
                ids += self._encode_piece(piece)
        return ids


def _read_merges(metadata: Metadata, vocabulary: Vocabulary, *, required: bool) -> list[tuple[str, str]]:
    merges = fields.read_strings(metadata, _MERGES_KEY)
    if merges is None:
        if required:
            raise make_metadata_error(f"{_MERGES_KEY}: the merge list of the BPE vocabulary is missing")
        return []
    pairs: dict[tuple[str, str], None] = {}  # the first of equal merges determines the rank
    for rank, merge in enumerate(merges):
        space = merge.find(" ", 1)
        left, right = merge[:space], merge[space + 1 :]
        if space < 0 or not right:
            raise make_metadata_error(
                f"{_MERGES_KEY}: entry {rank} is {merge!r}, not two tokens separated by a space"
            )
        for token in (left, right, left + right):
            if token not in vocabulary.ids:
                raise make_metadata_error(
                    f"{_MERGES_KEY}: entry {rank}, {merge!r}, needs {token!r}, which is not in the vocabulary"
                )
        pairs[left, right] = None
    return list(pairs)
