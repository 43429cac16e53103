"""Tokens become text that may be delivered: whole characters, and nothing that could still become a stop."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.model.tokenizer import StreamDecoder


class TextOut:
    """The text of one answer. `stopped`: the stop string that ended it; it is not part of the text, and nothing
    after it is."""

    def __init__(self, decoder: StreamDecoder, stops: Sequence[str] = ()) -> None:
        self._decoder = decoder
        self._stops = tuple(stops)
        self._held = ""  # the longest end of the text so far that a stop could begin with
        self.stopped: str | None = None

    def feed(self, token: int) -> str:
        """The text that a token makes safe to deliver, possibly none."""
        return self._deliver(self._decoder.feed(token))

    def close(self) -> str:
        """The rest, when no token comes any more: what was held back stands for itself."""
        text = self._deliver(self._decoder.flush())
        held, self._held = self._held, ""
        return text + held

    def _deliver(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + text
        # The first to be complete ends it, not the first to begin: so it does not matter how the text is cut.
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        safe = len(text) - self._undecided(text)
        self._held = text[safe:]
        return text[:safe]

    def _undecided(self, text: str) -> int:
        """How many characters at the end could be the beginning of a stop."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for count in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-count:]) for stop in self._stops):
                return count
        return 0
