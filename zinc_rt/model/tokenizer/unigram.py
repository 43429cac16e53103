"""SentencePiece Unigram: the segmentation with the highest total score."""

from __future__ import annotations

import numpy as np

from zinc_rt.model.tokenizer import fields
from zinc_rt.model.tokenizer.fields import Metadata, make_metadata_error
from zinc_rt.model.tokenizer.vocabulary import NORMAL, PREFIX, UNUSED, USER_DEFINED, Vocabulary

CHARSMAP_KEY = "tokenizer.ggml.precompiled_charsmap"


class CharsMap:
    """A character map read from `blob`. Raises InputError if an offset is outside the blob."""

    def __init__(self, blob: bytes) -> None:
        trie_bytes = int.from_bytes(blob[:4], "little")
        if len(blob) < 4 or trie_bytes + 4 >= len(blob) or trie_bytes < 4:
            raise make_metadata_error(
                f"{CHARSMAP_KEY}: a trie of {trie_bytes} bytes does not fit in {len(blob)} bytes"
            )
        count = trie_bytes // 4
        self._units = list(memoryview(blob[4 : 4 + 4 * count]).cast("I"))
        self._texts = blob[4 + trie_bytes :]

    def find_longest_prefix(self, text: bytes, start: int) -> tuple[bytes, int] | None:
        """Return (replacement, bytes replaced) for the longest known prefix of `text[start:]`."""
        longest_match: tuple[int, int] | None = None
        node = _decode_base(self._read_unit(0))
        for index in range(start, len(text)):
            byte = text[index]
            if byte == 0:
                break
            node ^= byte
            unit = self._read_unit(node)
            if unit & 0x800000FF != byte:
                break
            node ^= _decode_base(unit)
            if unit >> 8 & 1:
                longest_match = self._read_unit(node) & 0x7FFFFFFF, index - start + 1
        if longest_match is None:
            return None
        offset, length = longest_match
        stop = self._texts.find(b"\0", offset)
        if stop < 0:
            raise make_metadata_error(
                f"{CHARSMAP_KEY}: the replacement at {offset} is outside the table of {len(self._texts)} bytes"
            )
        return self._texts[offset:stop], length

    def _read_unit(self, index: int) -> int:
        if index >= len(self._units):
            raise make_metadata_error(
                f"{CHARSMAP_KEY}: unit {index} is outside the trie of {len(self._units)} units"
            )
        return self._units[index]


def _decode_base(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)


SPACE = "\u2581"
UNKNOWN_PENALTY = 10.0  # unknown_token_score_penalty


class Unigram:
    """A vocabulary of log probabilities."""

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        if "unk" not in vocabulary.roles:
            raise make_metadata_error(f"{PREFIX}unknown_token_id: missing, but required by a unigram vocabulary")
        self._unknown = vocabulary.roles["unk"]
        self._space_prefix = fields.read_flag(metadata, PREFIX + "add_space_prefix", False)
        self._merge_spaces = fields.read_flag(metadata, PREFIX + "remove_extra_whitespaces", False)
        blob = fields.read_numbers(metadata, CHARSMAP_KEY, kinds="iu")
        self._charsmap: CharsMap | None = None
        if blob is not None and blob.size:
            self._charsmap = CharsMap(blob.astype(np.uint8).tobytes())

        normal = vocabulary.select_kind(NORMAL)
        lowest = vocabulary.scores[normal].min() if normal else np.float32(0)
        self._unknown_score = float(lowest - np.float32(UNKNOWN_PENALTY))
        scores = vocabulary.scores.tolist()
        self._tokens: dict[str, tuple[int, float]] = {}
        self._longest: dict[str, int] = {}  # first character -> length of the longest token that starts with it
        for id in vocabulary.select_kind(NORMAL | USER_DEFINED | UNUSED):
            text = vocabulary.texts[id]
            self._tokens[text] = id, 0.0 if vocabulary.kinds[id] & USER_DEFINED else scores[id]
            self._longest[text[0]] = max(self._longest.get(text[0], 0), len(text))
        # llama.cpp copies any prefix of a user-defined token unmapped, not only whole tokens.
        self._verbatim = {
            text[:stop]
            for text in (vocabulary.texts[id].encode() for id in vocabulary.select_kind(USER_DEFINED))
            for stop in range(1, len(text) + 1)
        }

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Encode `text` to token ids; adjacent unknown tokens are merged. O(n times the longest token)."""
        text = self._normalize(text)
        count = len(text)
        best = [-float("inf")] * (count + 1)
        best[0] = 0.0
        token_at = [self._unknown] * (count + 1)  # the token that ends here on the best path
        start_of = [0] * (count + 1)
        for start in range(count):
            base = best[start]
            for stop in range(start + 1, min(start + self._longest.get(text[start], 0), count) + 1):
                token = self._tokens.get(text[start:stop])
                if token is not None and base + token[1] > best[stop]:
                    token_at[stop], best[stop], start_of[stop] = token[0], base + token[1], start
            if text[start] not in self._tokens and base + self._unknown_score > best[start + 1]:
                token_at[start + 1], best[start + 1], start_of[start + 1] = (
                    self._unknown,
                    base + self._unknown_score,
                    start,
                )
        ids: list[int] = []
        index = count
        while index > 0:
            if not (ids and ids[-1] == token_at[index] == self._unknown):
                ids.append(token_at[index])
            index = start_of[index]
        return ids[::-1]

    def _normalize(self, text: str) -> str:
        out: list[bytes] = []
        space = SPACE.encode()
        prefixed = in_word = False
        for mapped in self._map_characters(text.encode()):
            for index, part in enumerate(mapped.split(b" ")):
                if index:
                    in_word = False
                    if not self._merge_spaces:
                        out.append(space)
                if part and not in_word:
                    in_word = True
                    if (self._space_prefix and not prefixed) or self._merge_spaces:
                        out.append(space)
                        prefixed = True
                out.append(part)
        # A verbatim prefix may end inside a character; the bytes that follow complete it.
        return b"".join(out).decode(errors="replace")

    def _map_characters(self, text: bytes) -> list[bytes]:
        if self._charsmap is None:
            return [text]
        pieces: list[bytes] = []
        index = 0
        while index < len(text):
            stop = index
            while stop < len(text) and text[index : stop + 1] in self._verbatim:
                stop += 1
            if stop > index:
                pieces.append(text[index:stop])
                index = stop
                continue
            replacement = self._charsmap.find_longest_prefix(text, index)
            if replacement is None:
                stop = index + 1
                while stop < len(text) and text[stop] & 0xC0 == 0x80:
                    stop += 1
                replacement = text[index:stop], stop - index
            pieces.append(replacement[0])
            index += replacement[1]
        return pieces
