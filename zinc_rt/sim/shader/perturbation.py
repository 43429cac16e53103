"""How inexact instructions are moved within their 1 ULP (RDNA4 ISA 16.8): a seed of 64 bits, 0 for not at all.

Bits 47:0 are any number, from which each result gets -1, 0 or +1 ULP. Bit 63 moves every one by +1 instead, bit 62
by -1, and each bit from 48 on leaves one function as it is.
"""

from __future__ import annotations

FUNCTIONS = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")
UP_BIT, DOWN_BIT, FIRST_KEPT_BIT = 63, 62, 48


def every_result(by: int, *functions: str) -> int:
    """The seed that moves every ordinary result of `functions` (default: all) by `by`, +1 or -1 ULP.

    Raises ValueError for another step or function.
    """
    if by not in (1, -1) or set(functions) - set(FUNCTIONS):
        raise ValueError(f"wanted +1 or -1 and functions of {FUNCTIONS}, not {by} and {functions}")
    kept = sum(
        1 << FIRST_KEPT_BIT + at for at, name in enumerate(FUNCTIONS) if functions and name not in functions
    )
    return 1 << (UP_BIT if by > 0 else DOWN_BIT) | kept
