"""The engine: devices, graphs, step execution, the scheduler's runner, and the library `LLM`.

`Engine` runs sequences that its caller selects; `LLM` answers many prompts at once. Both are imported on
first use, because a command's --help imports parts of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.engine.engine import Engine as Engine
    from zinc_rt.engine.engine import Sequence as Sequence
    from zinc_rt.engine.llm import LLM as LLM

__all__ = ["LLM", "Engine", "Sequence"]

_LAZY = {"Engine": "engine", "LLM": "llm", "Sequence": "engine"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"zinc_rt.engine.{_LAZY[name]}"), name)
