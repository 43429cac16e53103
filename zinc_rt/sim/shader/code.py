"""A kernel's machine code, fetched as far as its control flow goes: nothing says where code ends."""

from __future__ import annotations

from zinc_rt.isa import Target
from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.interfaces import AddressSpace, Fault
from zinc_rt.sim.shader.cfg import graph_of

MAX_BYTES = 1 << 20


def fetched(space: AddressSpace, va: int, target: Target) -> bytes:
    """From `va` to the end of the last instruction that can be reached. Raises Fault where not even the first can
    be fetched; code that runs into a page that cannot is cut there."""
    code = b""
    end = va + PAGE_BYTES - va % PAGE_BYTES
    while True:
        try:
            code += space.fetch(va + len(code), end - va - len(code))
        except Fault:
            if not code:
                raise
            return code
        reached = reached_bytes(code, target)
        if reached <= len(code) or len(code) >= MAX_BYTES:
            return code[:reached]
        end = round_up(va + reached, PAGE_BYTES)  # no page more: the next may not be mapped


def reached_bytes(code: bytes, target: Target) -> int:
    """How many bytes of the code its control flow covers; more than there are where it goes on behind them."""
    reached = 0
    for block in graph_of(code, 0, target).blocks.values():
        if block.illegal_at is not None:
            near_end = block.illegal_at + LONGEST_BYTES > len(code)
            reached = max(reached, len(code) + LONGEST_BYTES if near_end else block.illegal_at + 4)
        reached = max(reached, block.end)
    return reached


LONGEST_BYTES = 16
"""Of one instruction: a shorter rest of the code may be half of one."""
