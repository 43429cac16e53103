"""Real true16 in assembly source: LLVM's assembler has to be asked for it (docs/isa.md)."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|;[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*\.(?:include|file|loc|ident|section)\b[^\n]*", re.MULTILINE)
_HALF = re.compile(r"[\w)\]]\.[lh]\b|\bv_(?:mov|swap)_b16", re.IGNORECASE)
REAL = ("-Xclangas", "-target-feature", "-Xclangas", "+real-true16")
"""Flags of clang for an assembly source in real true16."""


def has_halves(text: str) -> bool:
    """Return whether assembly text names a half of a vector register (v1.l, \\reg\\().h), or has an instruction
    that only real true16 has."""
    return _HALF.search(_DIRECTIVE.sub("", _COMMENT.sub("", text))) is not None


FAKE = ("-Xclangas", "-target-feature", "-Xclangas", "-real-true16")
"""The same for a source without halves, where real true16 is the default (gfx11)."""
