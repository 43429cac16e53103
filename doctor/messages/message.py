"""One message of the Linux kernel log: a pattern, and the event that it indicates."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownMessage:
    event: str
    pattern: re.Pattern[str]
    source: str


def make_rows(event: str, source: str, *patterns: str) -> list[KnownMessage]:
    """Return a row for each pattern of one event in one source file."""
    return [KnownMessage(event, re.compile(pattern, re.IGNORECASE), source) for pattern in patterns]
