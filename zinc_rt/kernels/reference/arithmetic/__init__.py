"""The arithmetic orderings that the oracle supports, as defined in docs/canonical-1.md."""

from __future__ import annotations

from zinc_rt.host.errors import UsageError
from zinc_rt.kernels.reference.arithmetic.base import Arithmetic
from zinc_rt.kernels.reference.arithmetic.canonical import Canonical1
from zinc_rt.kernels.reference.arithmetic.float32 import Float32Dequant
from zinc_rt.kernels.reference.arithmetic.q8 import Canonical1Q8

__all__ = ["ORDERINGS", "Arithmetic", "arithmetic"]

ORDERINGS: tuple[str, ...] = ("canonical-1", "canonical-1-q8", "float32-dequant")


def arithmetic(ordering: str, *, threads: int = 1) -> Arithmetic:
    """Return an ordering by name. `threads` distributes rows of weights in the canonical orderings; results do not
    depend on it."""
    match ordering:
        case "canonical-1":
            return Canonical1(threads)
        case "canonical-1-q8":
            return Canonical1Q8(threads)
        case "float32-dequant":
            return Float32Dequant()
    raise UsageError(f"unknown arithmetic ordering {ordering!r}", next="choose one of: " + ", ".join(ORDERINGS))
