"""ZINC_RT: from a GGUF file to the GPU's command processor, and the tools to trust every step between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zinc_rt import _moved

if TYPE_CHECKING:
    from zinc_rt.engine.llm import LLM as LLM
    from zinc_rt.host.version import __version__ as __version__
    from zinc_rt.launching.launch import launch as launch
    from zinc_rt.sched.sampling import Sampling as Sampling

__all__ = ["LLM", "Sampling", "__version__", "launch"]

_LAZY = {  # a command's --help must not load a runtime
    "LLM": "zinc_rt.engine.llm",
    "Sampling": "zinc_rt.sched.sampling",
    "__version__": "zinc_rt.host.version",
    "launch": "zinc_rt.launching.launch",
}

_moved.install()


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
