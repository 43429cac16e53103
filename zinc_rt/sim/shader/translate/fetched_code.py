"""A kernel's machine code, fetched as far as its control flow goes: nothing says where code ends."""

from __future__ import annotations

from zinc_rt.isa import Target
from zinc_rt.isa.control_flow import control_flow
from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.interfaces import AddressSpace, Fault

MAX_BYTES = 1 << 20
HEAD_BYTES = 64  # by which known code is looked up


class KnownCode:
    """Code whose control flow was followed once. The same bytes go equally far wherever they lie."""

    def __init__(self) -> None:
        self._codes: dict[tuple[Target, bytes], list[bytes]] = {}  # by target and first bytes

    def at_start_of(self, code: bytes, target: Target) -> bytes | None:
        known = self._codes.get((target, code[:HEAD_BYTES]), ())
        return next((each for each in known if code.startswith(each)), None)

    def add(self, code: bytes, target: Target) -> None:
        if len(code) >= HEAD_BYTES:
            self._codes.setdefault((target, code[:HEAD_BYTES]), []).append(code)


def fetched(space: AddressSpace, va: int, target: Target, known: KnownCode | None = None) -> bytes:
    """From `va` to the end of the last instruction that can be reached. Raises Fault where not even the first can
    be fetched; code that runs into a page that cannot is cut there."""
    known = KnownCode() if known is None else known
    code = b""
    end = va + PAGE_BYTES - va % PAGE_BYTES
    while True:
        try:
            code += space.fetch(va + len(code), end - va - len(code))
        except Fault:
            if not code:
                raise
            return code
        met = known.at_start_of(code, target)
        if met is not None:
            return met
        reached = reached_bytes(code, target)
        if reached <= len(code) or len(code) >= MAX_BYTES:
            known.add(code[:reached], target)
            return code[:reached]
        end = round_up(va + reached, PAGE_BYTES)  # no page more: the next may not be mapped


def reached_bytes(code: bytes, target: Target) -> int:
    """How many bytes of the code its control flow covers; more than there are where it goes on behind them."""
    reached = 0
    for block in control_flow(code, target, running=True).blocks.values():
        if block.illegal_at is not None:
            near_end = block.illegal_at + LONGEST_BYTES > len(code)
            reached = max(reached, len(code) + LONGEST_BYTES if near_end else block.illegal_at + 4)
        reached = max(reached, block.end)
    return reached


LONGEST_BYTES = 16
"""Of one instruction: a shorter rest of the code may be half of one."""
