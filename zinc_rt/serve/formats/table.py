"""All formats, those first whose sign in a template is the most particular."""

from __future__ import annotations

from zinc_rt.errors import UsageError
from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.hermes import HERMES
from zinc_rt.serve.formats.plain import PLAIN
from zinc_rt.serve.formats.qwen3 import QWEN3

FORMATS: tuple[Format, ...] = (QWEN3, HERMES, PLAIN)


def choose(template: str | None) -> Format:
    """The format of a chat template's text; plain where nothing in it is known."""
    return next(format for format in FORMATS if format.fits(template or ""))


def named(name: str) -> Format:
    """The format of a configuration. Raises UsageError."""
    found = next((format for format in FORMATS if format.name == name), None)
    if found is None:
        raise UsageError(f"no format is called {name!r}", next=f"one of {', '.join(f.name for f in FORMATS)}")
    return found
