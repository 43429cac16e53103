"""Seeds for the perturbation of inexact instructions within 1 ULP (RDNA4 ISA 16.8): 64 bits, 0 to disable.

Bits 47:0 are a random number that determines -1, 0 or +1 ULP for each result. Bit 63 moves every result by +1
instead, bit 62 by -1. Each bit from 48 on excludes one function.
"""

from __future__ import annotations

FUNCTIONS = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")
UP_BIT, DOWN_BIT, FIRST_KEPT_BIT = 63, 62, 48


def perturb_results(by: int, *functions: str) -> int:
    """Return the seed that moves every ordinary result of `functions` (default: all) by `by`, +1 or -1 ULP.

    Raises ValueError for any other step or function.
    """
    if by not in (1, -1) or set(functions) - set(FUNCTIONS):
        raise ValueError(f"expected +1 or -1 and functions among {FUNCTIONS}, not {by} and {functions}")
    kept = sum(
        1 << FIRST_KEPT_BIT + index for index, name in enumerate(FUNCTIONS) if functions and name not in functions
    )
    return 1 << (UP_BIT if by > 0 else DOWN_BIT) | kept
