"""Marks that a vocabulary has no token for are found in the text, however it is cut."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.serve.formats.format import Mark, Part


class MarkScanner:
    """Cuts text that arrives in pieces at its marks. None of the marks may begin with another."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = tuple(marks)
        self._held = ""  # the longest end so far that a mark could begin with

    def feed(self, text: str) -> list[Part]:
        """What is certain now."""
        text = self._held + text
        parts: list[Part] = []
        while found := [(at, mark) for mark in self._marks if (at := text.find(mark)) >= 0]:
            at, mark = min(found)
            parts += [text[:at]] * (at > 0)
            parts.append(Mark(mark))
            text = text[at + len(mark) :]
        certain = len(text) - self._undecided(text)
        self._held = text[certain:]
        return parts + [text[:certain]] * (certain > 0)

    def flush(self) -> str:
        """What was held back, when it can be no mark any more."""
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        longest = max(map(len, self._marks), default=1) - 1
        ends = range(min(longest, len(text)), 0, -1)
        return next((n for n in ends if any(mark.startswith(text[-n:]) for mark in self._marks)), 0)
