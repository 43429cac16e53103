"""T-CPU results kept on disk, by everything they depend on: model, tokens, ordering, code."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.code_version import code_version
from zinc_rt.folders import cache_folder
from zinc_rt.validate.capture import Run

# RuntimeError: an encryption or compression flag that a flipped bit set
UNREADABLE = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
KEEP_BYTES = 2 << 30  # the oldest results go beyond this


def folder() -> Path:
    return cache_folder() / "validate"


def key_of(**parts: Any) -> str:
    """Arrays count by their bytes, everything else by its JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
        return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value

    text = json.dumps({"code": code_version(), **plain(parts)}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def load(key: str) -> Run | None:
    """None where there is nothing, or nothing readable."""
    try:
        with np.load(folder() / f"{key}.npz", allow_pickle=False) as archive:
            labels, head_dims, generated, seconds, asked = json.loads(str(archive["about"]))
            values = {label: archive[f"value{index}"] for index, label in enumerate(labels)}
            return Run(archive["logits"], values, generated, head_dims, seconds, cached=True, asked=asked)
    except UNREADABLE:
        return None


def store(key: str, run: Run) -> None:
    """Best effort: a cache that cannot be written is no error."""
    about = json.dumps([list(run.values), run.head_dims, run.generated, run.seconds, run.asked])
    arrays = {f"value{index}": value for index, value in enumerate(run.values.values())}
    unfinished = folder() / f"{key}.{os.getpid()}.part"
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                np.savez(file, about=np.array(about), logits=run.logits, **arrays)  # type: ignore[arg-type]
            unfinished.replace(folder() / f"{key}.npz")
        finally:
            unfinished.unlink(missing_ok=True)
        _trim()


def _trim() -> None:
    files = sorted(folder().glob("*.npz"), key=lambda file: file.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > KEEP_BYTES:
            file.unlink(missing_ok=True)
