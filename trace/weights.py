"""Compute the sha256 of each weight's bytes in the file, cached by the file's size and modification time."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from zinc_rt.host.files import cache_folder
from zinc_rt.host.version import digest_code
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.gguf import SETTLED_NS, GGUFFile


def weight_bytes(weight: Weight) -> np.ndarray:
    """Return the weight's bytes, u8 [bytes]: whole rows in order, copied only if the view is not
    contiguous."""
    return np.ascontiguousarray(weight.raw).reshape(-1).view(np.uint8)


def compute_digests(gguf: GGUFFile, weights: Mapping[str, Weight]) -> dict[str, str]:
    """Return the sha256 (hex) of each weight, by IR name."""
    cache_file = _cache_file(gguf)
    known: dict[str, str] = {}
    with suppress(OSError, ValueError):
        read = json.loads(cache_file.read_text(encoding="ascii"))
        known = {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else {}
    fresh = {
        key: hashlib.sha256(weight_bytes(weight).data).hexdigest()
        for name, weight in weights.items()
        if (key := _cache_key(name, weight)) not in known
    }
    known |= fresh
    if fresh and time.time_ns() - gguf.mtime_ns > SETTLED_NS:
        with suppress(OSError):
            _store_digests(cache_file, known)
    return {name: known[_cache_key(name, weight)] for name, weight in weights.items()}


def _cache_key(name: str, weight: Weight) -> str:
    return f"{name} {weight.dtype} {','.join(map(str, weight.shape))}"


def _cache_file(gguf: GGUFFile) -> Path:
    """Return the cache file of the digests. It depends on the code, which assigns the names to parts of the
    file."""
    identity = f"{gguf.stamp}\0{digest_code()}"
    name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
    return cache_folder() / "weights" / f"{name}.json"


def _store_digests(path: Path, known: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    unfinished.write_text(json.dumps(known), encoding="ascii")
    unfinished.replace(path)
