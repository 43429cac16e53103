"""The instruction-set levels that the native kernels are compiled for, by machine. Imports nothing."""

from __future__ import annotations

# Values of -mcpu, the best first: if one fails its self-test, the next is tried.
LEVELS = {
    "x86_64": ("native", "x86_64_v3", "x86_64_v2"),
    "aarch64": ("native", "generic"),
    "arm64": ("native", "generic"),
}


def list_machine_levels(machine: str) -> tuple[str, ...]:
    """Return the levels of a machine as named by `platform.machine()`; empty if it has no native kernels."""
    return LEVELS.get(machine.replace("AMD64", "x86_64"), ())
