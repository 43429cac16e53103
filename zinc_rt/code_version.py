"""Which code computed a result: recorded results of other code are other results."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import numpy as np

RUNTIME = ("engine.py", "variants.py", "exec", "ir", "kernels", "lower", "mem", "model", "backends")


@cache
def code_version() -> str:
    """Digest of the runtime's own source: any change of the oracle is another oracle."""
    root = Path(__file__).parent
    digest = hashlib.sha256(np.__version__.encode())
    for name in RUNTIME:
        path = root / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


MEASURED = (".py", ".zrt", ".s", ".inc")


@cache
def runtime_version() -> str:
    """Digest of everything that runs below the harness, kernels included: what a speed or a bit was shown of."""
    root = Path(__file__).parent
    files = [
        Path(folder, name)
        for folder, _, names in os.walk(root)  # does not follow the links to the harness
        for name in names
        if name.endswith(MEASURED)
    ]
    digest = hashlib.sha256(np.__version__.encode())
    for file in sorted(files):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
