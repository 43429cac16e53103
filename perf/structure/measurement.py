"""What a structural measure gives, and the prompt that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """`value` in the criterion's unit; `how` in a sentence; `detail` is what it was made of."""

    value: float
    how: str
    detail: Mapping[str, Any] = field(default_factory=dict)


def prompt_of(vocab: int, count: int) -> list[int]:
    """Token ids of any vocabulary, no two neighbours alike."""
    return [(7 * index + 1) % vocab for index in range(count)]
