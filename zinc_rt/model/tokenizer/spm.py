"""SentencePiece BPE: merge adjacent pieces while their concatenation is a token, best score first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from zinc_rt.host.errors import InputError
from zinc_rt.model.tokenizer.vocabulary import Vocabulary

SPACE = "\u2581"


class SPM:
    """A scored vocabulary with byte fallback."""

    def __init__(self, vocabulary: Vocabulary, *, add_space_prefix: bool) -> None:
        self._ids = vocabulary.ids
        self._scores: list[float] = vocabulary.scores.tolist()
        self._space_prefix = add_space_prefix
        unknown = vocabulary.roles.get("unk")
        self._bytes = [vocabulary.ids.get(f"<0x{byte:02X}>", unknown) for byte in range(256)]
        for byte in range(128):
            if f"<0x{byte:02X}>" not in vocabulary.ids:
                self._bytes[byte] = vocabulary.ids.get(chr(byte), unknown)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Encode `text` to token ids. `after_special`: it starts the prompt or follows a special token. O(n log
        n)."""
        if self._space_prefix and after_special:
            text = " " + text
        text = text.replace(" ", SPACE)
        ids: list[int] = []
        for symbol in self._merge(text):
            id = self._ids.get(symbol)
            if id is None:
                ids += [self._byte_token(byte) for byte in symbol.encode()]
            else:
                ids.append(id)
        return ids

    def _byte_token(self, byte: int) -> int:
        id = self._bytes[byte]
        if id is None:
            raise InputError(
                f"the vocabulary has no token for byte 0x{byte:02X} and no unknown token",
                next="leave that character out of the text, or use another file",
            )
        return id

    def _merge(self, text: str) -> list[str]:
        """Merge symbols until no merge is possible. Return the remaining symbols.

        A symbol is identified by its first character's index; `end` 0 means merged.
        """
        ids, scores = self._ids, self._scores
        count = len(text)
        end = list(range(1, count + 1))
        previous = list(range(-1, count - 1))
        heap = [
            (-scores[id], index, index + 2)
            for index in range(count - 1)
            if (id := ids.get(text[index : index + 2])) is not None
        ]
        heapify(heap)

        def add_candidate(left: int, right: int) -> None:
            id = ids.get(text[left : end[right]])
            if id is not None:
                heappush(heap, (-scores[id], left, end[right]))

        while heap:
            _, left, stop = heappop(heap)
            right = end[left]
            if not right or right >= count or end[right] != stop:
                continue  # one of the two has been merged since
            end[left], end[right] = stop, 0
            if stop < count:
                previous[stop] = left
                add_candidate(left, stop)
            if previous[left] >= 0:
                add_candidate(previous[left], left)
        symbols = []
        index = 0
        while index < count:
            symbols.append(text[index : end[index]])
            index = end[index]
        return symbols
