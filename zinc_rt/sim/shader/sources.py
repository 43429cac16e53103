"""The version of the shader engine, derived from its sources."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def digest_sources() -> str:
    """Return a digest of the shader engine and the instruction tables, because changes to them affect compiled
    kernels.
    """
    digest = hashlib.sha256()
    shader = Path(__file__).parent
    for folder in (shader, shader.parent.parent / "isa"):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".tsv") and file.is_file():
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
