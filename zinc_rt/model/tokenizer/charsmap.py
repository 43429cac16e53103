"""SentencePiece's precompiled character map: replaces the longest known prefix at each place.

Layout: 4 bytes little-endian size of the trie in bytes; the trie, an XOR-compressed double array of uint32; then
NUL-terminated UTF-8 replacements. A unit holds the base in bits 10-30 (shifted left by 8 where bit 9 is set), the
label in bits 0-7 with bit 31, "a value follows" in bit 8; a value unit is an offset into the replacements.
Source: llama.cpp src/llama-vocab.cpp, `llm_tokenizer_ugm_session::normalize_prefix` and `xcda_array_view`.
"""

from __future__ import annotations

from zinc_rt.model.tokenizer.fields import malformed

KEY = "tokenizer.ggml.precompiled_charsmap"


class CharsMap:
    """The map in `blob`. Raises InputError where an offset leaves the blob."""

    def __init__(self, blob: bytes) -> None:
        trie_bytes = int.from_bytes(blob[:4], "little")
        if len(blob) < 4 or trie_bytes + 4 >= len(blob) or trie_bytes < 4:
            raise malformed(f"{KEY}: a trie of {trie_bytes} bytes does not fit in {len(blob)}")
        count = trie_bytes // 4
        self._units = list(memoryview(blob[4 : 4 + 4 * count]).cast("I"))
        self._texts = blob[4 + trie_bytes :]

    def longest(self, text: bytes, start: int) -> tuple[bytes, int] | None:
        """(replacement, bytes replaced) for the longest known prefix of `text[start:]`."""
        found: tuple[int, int] | None = None
        node = _base(self._unit(0))
        for at in range(start, len(text)):
            byte = text[at]
            if byte == 0:
                break
            node ^= byte
            unit = self._unit(node)
            if unit & 0x800000FF != byte:
                break
            node ^= _base(unit)
            if unit >> 8 & 1:
                found = self._unit(node) & 0x7FFFFFFF, at - start + 1
        if found is None:
            return None
        offset, length = found
        stop = self._texts.find(b"\0", offset)
        if stop < 0:
            raise malformed(f"{KEY}: the replacement at {offset} leaves the table of {len(self._texts)} bytes")
        return self._texts[offset:stop], length

    def _unit(self, index: int) -> int:
        if index >= len(self._units):
            raise malformed(f"{KEY}: unit {index} leaves the trie of {len(self._units)}")
        return self._units[index]


def _base(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)
