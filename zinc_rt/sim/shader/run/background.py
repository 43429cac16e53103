"""Optimised compilation of kernels in another process, while this process runs the quickly compiled code."""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.layout import KernelVariant

WORKER = "zinc_rt.sim.shader.run.compile_workers"


class Background:
    """A background compiler: one low-priority process at a time, which ends with this process. Results are
    stored in the cache.

    If compilation fails, the cache has no entry and the kernel keeps its current code; this is not an error.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._asked: dict[KernelVariant, bool] = {}  # whether its process has ended
        self._worker: subprocess.Popen[bytes] | None = None
        self._working: list[KernelVariant] = []

    def done(self, variant: KernelVariant) -> bool:
        """Return whether compilation has finished or failed. The first call requests it."""
        self._asked.setdefault(variant, False)
        if self._worker is not None and self._worker.poll() is not None:
            self._asked.update(dict.fromkeys(self._working, True))
            self._worker, self._working = None, []
        if self._worker is None:
            self._start([item for item, ended in self._asked.items() if not ended])
        return self._asked[variant]

    def _start(self, variants: list[KernelVariant]) -> None:
        if not variants:
            return
        try:
            worker = subprocess.Popen(
                ["nice", sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:  # no process to be had: nothing becomes better
            self._asked.update(dict.fromkeys(variants, True))
            return
        atexit.register(worker.kill)
        self._worker, self._working = worker, variants
        assert worker.stdin is not None
        try:
            with worker.stdin as pipe:
                pickle.dump((self._cache, variants), pipe)
        except BrokenPipeError:  # it ended immediately: detected on request
            return
