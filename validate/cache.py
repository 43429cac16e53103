"""T-CPU results cached on disk. The key covers all inputs: model, tokens, ordering, code, processor and BLAS."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.host.files import cache_folder
from zinc_rt.host.machine import read_processor_name
from zinc_rt.host.version import digest_code

# RuntimeError: an encryption or compression flag that a flipped bit set
UNREADABLE = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
KEEP_BYTES = 2 << 30  # the oldest results go beyond this


def cache_directory() -> Path:
    return cache_folder() / "validate"


@cache
def describe_arithmetic() -> dict[str, Any]:
    """Return the machine properties that can affect a float32 sum. BLAS selects its kernels by processor."""
    built = np.show_config(mode="dicts")
    blas: Any = built.get("Build Dependencies", {}).get("blas", {}) if isinstance(built, dict) else {}
    core: Any = getattr(np, "_core", None) or np.core
    features = getattr(core._multiarray_umath, "__cpu_features__", {})
    return {
        "processor": read_processor_name(),
        "features": sorted(name for name, item in features.items() if item),
        "numpy": np.__version__,
        "blas": {name: blas.get(name, "") for name in ("name", "version", "openblas configuration")},
    }


def compute_key(**parts: Any) -> str:
    """Compute a cache key. Arrays contribute their bytes, other values their JSON. The machine's arithmetic is
    part of every key.
    """

    def to_plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
        return {k: to_plain(v) for k, v in value.items()} if isinstance(value, dict) else value

    text = json.dumps(
        {"code": digest_code(), "arithmetic": describe_arithmetic(), **to_plain(parts)},
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def load_run(key: str) -> CapturedRun | None:
    """Return the result stored under this key, or None if there is none or it is unreadable."""
    try:
        with np.load(cache_directory() / f"{key}.npz", allow_pickle=False) as archive:
            labels, head_dims, generated, seconds, asked = json.loads(str(archive["about"]))
            values = {label: archive[f"value{index}"] for index, label in enumerate(labels)}
            return CapturedRun(archive["logits"], values, generated, head_dims, seconds, cached=True, asked=asked)
    except UNREADABLE:
        return None


def store_run(key: str, run: CapturedRun) -> None:
    """Store a result, on a best-effort basis: a cache that cannot be written is not an error."""
    about = json.dumps([list(run.values), run.head_dims, run.generated, run.seconds, run.asked])
    arrays = {f"value{index}": value for index, value in enumerate(run.values.values())}
    unfinished = cache_directory() / f"{key}.{os.getpid()}.part"
    with suppress(OSError):
        cache_directory().mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                np.savez(file, about=np.array(about), logits=run.logits, **arrays)  # type: ignore[arg-type]
            unfinished.replace(cache_directory() / f"{key}.npz")
        finally:
            unfinished.unlink(missing_ok=True)
        _trim()


def _trim() -> None:
    files = sorted(cache_directory().glob("*.npz"), key=lambda file: file.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > KEEP_BYTES:
            file.unlink(missing_ok=True)
