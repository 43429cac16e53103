"""One message of the Linux kernel's log: a pattern, and the event it stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownMessage:
    event: str
    pattern: re.Pattern[str]
    source: str


def rows(event: str, source: str, *patterns: str) -> list[KnownMessage]:
    """A row for each pattern of one event that one source file prints."""
    return [KnownMessage(event, re.compile(pattern, re.IGNORECASE), source) for pattern in patterns]
