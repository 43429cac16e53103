"""Text from tokens as they come, whole characters only."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Holds back the bytes of an unfinished UTF-8 character until the rest arrives."""

    def __init__(self, piece_bytes: Callable[[int], bytes]) -> None:
        self._piece_bytes = piece_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, id: int) -> str:
        """The characters finished by token `id`, possibly none; bytes that can be no character become U+FFFD."""
        return self._decoder.decode(self._piece_bytes(id))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an unfinished character, else nothing. Ready for a new stream."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
