"""Search for many names at once: at each word, only names with the same beginning are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from zinc_rt.doctor.bundle.private import PLACEHOLDER

SHORT = 3  # characters: a name of no more stands alone only between blanks and marks
_WORD = re.compile(r"[^\W_]+")


class NameSearch:
    """A set of names in lower case, including their JSON-escaped forms."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        forms = {form for name in names for form in (name, json.dumps(name)[1:-1])}
        for name in sorted(forms, key=lambda name: (-len(name), name)):  # a whole name goes before its parts
            self._by_start.setdefault(name[:2], []).append(name)

    def replace_names(self, text: str, make: Callable[[str, str], str]) -> str:
        """Replace each name in `text` by the result of make(name as written)."""
        if not self._by_start:
            return text
        parts, result = [], 0
        for word in _WORD.finditer(text):
            start = word.start()
            if text[start - 1 : start] == "\\" and word[0][0] in "nrt":  # an escaped line end, not a letter
                start += 1
            if start < result or (start and PLACEHOLDER.match(text, start - 1)):
                continue
            for name in self._by_start.get(text[start : start + 2].lower(), ()):
                end = start + len(name)
                if text[start:end].lower() == name and _is_whole_word(text, start, end):
                    parts += [text[result:start], make(name, text[start:end])]
                    result = end
                    break
        return "".join([*parts, text[result:]]) if parts else text


def _is_whole_word(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    if end - start <= SHORT:
        return not (before.isalnum() or after.isalnum() or before in ("_", "-") or after in ("_", "-"))
    return not (after.isalnum() and text[end - 1].isalnum())
