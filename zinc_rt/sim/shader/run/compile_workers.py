"""Parallel compilation of many kernels in worker processes: LLVM's binding has one lock per process.

python -m zinc_rt.sim.shader.run.compile_workers < pickled (cache folder, [KernelVariant, …])
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.layout import KernelVariant
from zinc_rt.sim.shader.run.kernels import CompiledKernels, compile_variant, make_cache_key


def prepare(kernels: CompiledKernels, variants: Sequence[KernelVariant], processes: int | None = None) -> int:
    """Compile kernels that are cached neither in memory nor on disk into the disk cache. Return the number
    compiled.

    A failed worker is not an error: its kernels are compiled when they first run.
    """
    missing = [variant for variant in dict.fromkeys(variants) if not kernels.has(variant)]
    missing.sort(key=lambda item: len(item.code), reverse=True)
    count = min(processes or len(os.sched_getaffinity(0)), len(missing))
    started = []
    for number in range(count):
        worker = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert worker.stdin is not None
        with worker.stdin as pipe:
            pickle.dump((kernels.cache, missing[number::count]), pipe)
        started.append(worker)
    for worker in started:
        worker.wait()
    return len(missing)


def main() -> None:
    cache, variants = pickle.load(sys.stdin.buffer)
    assert isinstance(cache, ObjectCache)
    for variant in variants:
        cache.store(make_cache_key(variant), compile_variant(variant))


if __name__ == "__main__":
    main()
