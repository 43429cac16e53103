"""Numbers as the kernel writes them."""

from __future__ import annotations


def integer(text: str | None) -> int | None:
    """A number as sysfs writes it: decimal, or with 0x."""
    word = (text or "").strip().partition(" ")[0].strip()
    try:
        return int(word, 16 if word.lower().startswith("0x") else 10)
    except ValueError:
        return None
