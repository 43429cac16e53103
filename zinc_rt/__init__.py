"""ZINC_RT: run and validate language models on AMD GPUs, in Python.

    from zinc_rt import LLM, Sampling

The command line is `zinc-rt`. docs/library.md describes this API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zinc_rt import _moved as _moved

if TYPE_CHECKING:
    from zinc_rt import harness as harness
    from zinc_rt.engine.llm import LLM as LLM
    from zinc_rt.host.errors import CheckFailed as CheckFailed
    from zinc_rt.host.errors import FindingError as FindingError
    from zinc_rt.host.errors import InputError as InputError
    from zinc_rt.host.errors import NothingRan as NothingRan
    from zinc_rt.host.errors import OutputError as OutputError
    from zinc_rt.host.errors import UnsupportedError as UnsupportedError
    from zinc_rt.host.errors import UsageError as UsageError
    from zinc_rt.host.errors import ZincError as ZincError
    from zinc_rt.host.version import __version__ as __version__
    from zinc_rt.launching.launch import launch as launch
    from zinc_rt.sched.sampling import Sampling as Sampling

_LAZY = {  # name -> module; a command's --help must not load a runtime
    "LLM": "zinc_rt.engine.llm",
    "Sampling": "zinc_rt.sched.sampling",
    "__version__": "zinc_rt.host.version",
    "launch": "zinc_rt.launching.launch",
    "CheckFailed": "zinc_rt.host.errors",
    "FindingError": "zinc_rt.host.errors",
    "InputError": "zinc_rt.host.errors",
    "NothingRan": "zinc_rt.host.errors",
    "OutputError": "zinc_rt.host.errors",
    "UnsupportedError": "zinc_rt.host.errors",
    "UsageError": "zinc_rt.host.errors",
    "ZincError": "zinc_rt.host.errors",
}

__all__ = [
    "LLM", "CheckFailed", "FindingError", "InputError", "NothingRan", "OutputError", "Sampling",
    "UnsupportedError", "UsageError", "ZincError", "__version__", "harness", "launch",
]  # fmt: skip

_moved.install()


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "harness":
        return import_module("zinc_rt.harness")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
