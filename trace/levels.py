"""How much a log keeps."""

from __future__ import annotations

from typing import Literal

Level = Literal["digest", "inputs", "full"]
LEVELS: tuple[Level, ...] = ("digest", "inputs", "full")
