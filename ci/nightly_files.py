"""What a nightly run keeps on disk: JSON written whole, read past what is missing or torn, and logs."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STATE = "state.json"
FLAKES = "flakes.json"  # nights and failures of each, kept from night to night


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes JSON, whole or not at all, also past kill -9."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_state(folder: Path) -> dict[str, Any]:
    return read_json(folder / STATE)


def read_json(path: Path) -> dict[str, Any]:
    """The content; {} for a file that is missing or torn."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def tail(path: Path) -> str:
    """A log's last line with words in it."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        return "no log"
    return lines[-1].strip()[:200] if lines else "said nothing"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
