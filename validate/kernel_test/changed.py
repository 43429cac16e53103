"""Which kernels have changed since all their cases passed on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from zinc_rt.host.files import state_directory, write_atomically
from zinc_rt.host.version import digest_code, digest_planning
from zinc_rt.kernels.native.build import SOURCES
from zinc_rt.kernels.sets import BinaryKernelSet, KernelSet, SpirvKernelSet
from zinc_rt.validate.kernel_test.select import matches_globs
from zinc_rt.validate.kernel_test.side import Side

FILE = "kernel-test.json"


def list_changed(side: Side, globs: Sequence[str]) -> list[str]:
    """Return the kernels of a side, of those that match a pattern, whose code differs from what passed: their own,
    the oracle's, or that which plans and launches them.
    """
    passed = _read_passed().get(side.options, {})
    kernels = side.set()
    names = [name for name in kernels.names() if matches_globs(name, globs)]
    return [name for name in names if passed.get(name) != digest_kernel(kernels, name)]


def record_passed(side: Side, names: Iterable[str]) -> None:
    """Note that all cases of these kernels have passed. Raise OSError if the state folder cannot be written."""
    kernels, passed = side.set(), _read_passed()
    passed.setdefault(side.options, {}).update({name: digest_kernel(kernels, name) for name in names})
    path = state_directory() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(json.dumps(passed).encode()))


def digest_kernel(kernels: KernelSet, name: str) -> str:
    """Return a digest of a kernel's code and of the code that its verdict depends on."""
    digest = hashlib.sha256(f"{digest_code()} {digest_planning()} {name}".encode())
    if isinstance(kernels, BinaryKernelSet):
        digest.update(repr(kernels.load(name)).encode())
    elif isinstance(kernels, SpirvKernelSet):
        digest.update(kernels.module(name))
    else:  # C, of which every kernel includes the same headers
        for path in sorted(SOURCES.parent.rglob("*.[ch]")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_passed() -> dict[str, dict[str, str]]:
    try:
        passed = json.loads((state_directory() / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return passed if isinstance(passed, dict) else {}
