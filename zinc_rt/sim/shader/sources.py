"""The version of the shader engine, by its sources."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def own_sources() -> str:
    """Digest of the shader engine and the instruction tables: other code compiles other kernels."""
    digest = hashlib.sha256()
    shader = Path(__file__).parent
    for folder in (shader, shader.parent.parent / "isa"):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".tsv") and file.is_file():
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
