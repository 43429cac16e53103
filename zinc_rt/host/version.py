"""The release's version, and digests of the code that computed a result: a code change may change results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache

from zinc_rt.host.packages import PACKAGES, ROOT, list_files

__version__ = "0.2.0"

# The Python that turns a model into graphs and plans, with everything that it imports: packages, and files of
# packages that hold more than that. tests/test_layout.py follows the imports.
PLANNERS = (
    "backends/base.py", "backends/spec.py", "backends/times.py",
    "engine/graph_file.py", "engine/graph_store.py", "engine/memory_fit.py",
    "engine/resident.py", "engine/variants.py", "exec", "host", "ir", "isa/occupancy.py", "isa/target.py",
    "isa/wave_rules.py", "kernels", "kmd/driver.py", "lower", "mem", "model",
)  # fmt: skip
# What computes the bits that kernels are compared with, and the self-test's cases.
ORACLE = ("backends/cpu/self_test_cases.py", "kernels/cases.py", "kernels/reference", "kernels/weight.py")


@cache
def digest_code() -> str:
    """Return a digest of the code that determines a model's values: any change makes a different oracle."""
    return _digest_files(name for name, package in PACKAGES.items() if package.computes)


@cache
def digest_runtime() -> str:
    """Return a digest of everything below the harness, including kernels, which identifies measured speeds and
    results."""
    return _digest_files(PACKAGES)


@cache
def digest_oracle() -> str:
    """Return a digest of the reference kernels, and of the cases on which compiled kernels must equal them."""
    return _digest_files(ORACLE, ".py")


@cache
def digest_planning() -> str:
    """Return a digest of the Python code that builds a model's graphs and plans their dispatches.

    The code of kernels is excluded: a plan refers to kernels by name.
    """
    return _digest_files(PLANNERS, ".py")


@cache
def digest_planning_source() -> str:
    """Return the digest of the same code without NumPy's version, which a saved plan does not depend on."""
    return _digest_sources(PLANNERS, ".py").hexdigest()


def _digest_files(names: Iterable[str], *suffixes: str) -> str:
    import numpy as np  # late: most commands print a version and compute nothing

    digest = hashlib.sha256(np.__version__.encode())
    digest.update(_digest_sources(names, *suffixes).digest())
    return digest.hexdigest()


def _digest_sources(names: Iterable[str], *suffixes: str) -> hashlib._Hash:
    digest = hashlib.sha256()
    for name in sorted(names):
        for file in list_files(name):
            if suffixes and file.suffix not in suffixes:
                continue
            content = file.read_bytes()
            digest.update(f"{file.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode() + content)
    return digest
