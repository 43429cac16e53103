"""Compile kernels before a step runs for the first time, with progress reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

# Called with (kernels compiled, of how many) while a simulated device compiles those of a graph.
on_compile: ContextVar[Callable[[int, int], None] | None] = ContextVar("on_compile", default=None)
AT_ONCE = 4  # or as many as there are cores: each call starts a compiler a core
Kernel = TypeVar("Kernel")


def precompile_all(precompile: Callable[[Sequence[Kernel]], None], kernels: Sequence[Kernel]) -> None:
    """Compile all kernels in one call, which is fastest; a few at a time if on_compile is set."""
    progress = on_compile.get()
    if progress is None:
        precompile(kernels)
        return
    step = max(AT_ONCE, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    for index in range(0, len(kernels), step):
        progress(index, len(kernels))
        precompile(kernels[index : index + step])
    progress(len(kernels), len(kernels))
