"""Limit the size of a bundle: the order of truncation, and the messages about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST_BYTES = 2_000_000
ROOM_BYTES = 150_000  # for placeholders longer than what they hide, and the list of files
MOST_FILES = 1500
FLOOR_BYTES = 8_000  # below this a file is not cut any more
CAPS = {"log": 300_000, "report": 400_000, "hang": 150_000, "machine": 100_000, "facts": 100_000}
SACRIFICED = ("log", "hang", "machine", "report", "facts")  # first those that are missed least


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file to be added to a bundle. Logs keep their last lines, other files their first."""

    path: str
    content: bytes
    kind: str  # log, report, hang, machine, facts, text


@dataclass(frozen=True, slots=True)
class Cut:
    path: str
    had_bytes: int
    kept_bytes: int
    why: str


def limit_items(
    items: Sequence[BundleFile], most_bytes: int = MOST_BYTES - ROOM_BYTES
) -> tuple[list[BundleFile], list[Cut]]:
    """Limit each item by its kind, then return the items that fit and the list of truncations."""
    had = {item.path: len(item.content) for item in items}
    kept = {item.path: shorten_item(item, CAPS.get(item.kind, MOST_BYTES)) for item in items}
    for kind in SACRIFICED:
        while sum(len(item.content) for item in kept.values()) > most_bytes:
            mine = [item for item in kept.values() if item.kind == kind and len(item.content) > FLOOR_BYTES]
            if not mine:
                break
            largest = max(mine, key=lambda item: len(item.content))
            shorter = shorten_item(largest, len(largest.content) // 2)
            kept[largest.path] = (
                shorter if len(shorter.content) < len(largest.content) else replace(largest, content=b"")
            )
    spare = [path for kind in SACRIFICED for path, item in kept.items() if item.kind == kind]
    for path in spare[: max(0, len(kept) - MOST_FILES)]:
        kept[path] = replace(kept[path], content=b"")
    dropped = {path for path, item in kept.items() if had[path] and not item.content}
    for kind in SACRIFICED:  # very many small files
        for path in [path for path, item in kept.items() if item.kind == kind]:
            if sum(len(item.content) for item in kept.values()) > most_bytes:
                kept[path] = replace(kept[path], content=b"")
                dropped.add(path)
    cuts = [
        Cut(path, size, len(kept[path].content), "left out" if path in dropped else _cut_reason(kept[path]))
        for path, size in had.items()
        if size > len(kept[path].content) and (path in dropped or kept[path].kind != "text")
    ]
    return [item for path, item in kept.items() if path not in dropped], cuts


def shorten_item(item: BundleFile, most_bytes: int) -> BundleFile:
    """Shorten a file to about that size, keeping whole lines and valid JSON, with a line that reports the
    omission.
    """
    if len(item.content) <= most_bytes:
        return item
    if item.path.endswith(".json"):
        return replace(item, content=_shorten_json(item.content, most_bytes))
    if b"\0" in item.content:
        return replace(item, content=b"")  # half a ring is none
    if item.kind == "log":
        tail = item.content[-most_bytes:]
        tail = tail[tail.find(b"\n") + 1 :]
        note = f"[{len(item.content) - len(tail)} older bytes are cut]\n".encode()
        return replace(item, content=note + tail)
    head = item.content[:most_bytes]
    head = head[: head.rfind(b"\n") + 1] or head
    return replace(item, content=head + f"[{len(item.content) - len(head)} more bytes are cut]\n".encode())


def _cut_reason(item: BundleFile) -> str:
    return "the newest lines are kept" if item.kind == "log" else "the beginning is kept"


def _shorten_json(content: bytes, most_bytes: int) -> bytes:
    """Shorten a report: first without details, then without long texts, then further; b"" if still too large."""
    try:
        body = json.loads(content)
    except ValueError:
        return content[:most_bytes]
    for smaller in (_remove_details, lambda item: _clip_values(item, 4000), lambda item: _clip_values(item, 200)):
        body = smaller(body)
        shortened_json = json.dumps(body, indent=1).encode()
        if len(shortened_json) <= most_bytes:
            return shortened_json
    return b""


def _remove_details(body: Any) -> Any:
    if isinstance(body, dict) and body.get("details"):
        return {**body, "details": {"cut": "omitted from the bundle: too large"}}
    return body


def _clip_values(value: Any, length: int) -> Any:
    if isinstance(value, dict):
        return {key: _clip_values(item, length) for key, item in value.items()}
    if isinstance(value, list):
        return [_clip_values(item, length) for item in value[: max(50, length)]]
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}… [{len(value) - length} characters are cut]"
    return value
