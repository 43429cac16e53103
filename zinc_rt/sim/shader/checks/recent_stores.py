"""Who stored where lately, so that a finding of a stale line can name who, and what would have invalidated it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from zinc_rt.sim.shader_engine import Accesses, Ranges, ShaderDispatch

KEPT = 1024  # dispatches


@dataclass(frozen=True, slots=True)
class _Dispatch:
    serial: int
    name: str
    stored: Ranges


class RecentStores:
    """Of one address space's dispatches, in the order in which they ended."""

    def __init__(self) -> None:
        self._dispatches: deque[_Dispatch] = deque(maxlen=KEPT)

    def add(self, dispatch: ShaderDispatch, serial: int, accesses: Accesses) -> None:
        """`serial`: the engine's number of the dispatch."""
        name = f"{dispatch.space.describe(dispatch.program_va)} of {dispatch.label}"
        self._dispatches.append(_Dispatch(serial, name, accesses.writes + accesses.atomics))

    def explain(self, va: int, filled: int, *, scalar: bool) -> str:
        """Of a stale line with that VA, which the dispatch with serial `filled` loaded; the newest dispatch is the
        one whose wave came to it."""
        newest = self._dispatches[-1]
        cache, operation, instruction = _SCALAR if scalar else _VECTOR
        by = next((each.name for each in self._dispatches if each.serial == filled), "an earlier dispatch")
        writer = next(
            (
                each
                for each in reversed(self._dispatches)
                if each.serial >= filled and any(start <= va < start + size for start, size in each.stored)
            ),
            None,
        )
        held = f"the {cache} holds this line since {by}"
        if writer is None:
            return (
                f"{held}; not by a wave, but by the host, the command processor or DMA it was stored to since: "
                f"{operation} is missing behind that"
            )
        if writer is newest:
            return (
                f"{held}; waves of this dispatch have stored there since: {instruction} is missing before the load"
            )
        return f"{held}; {writer.name} has stored there since: {operation} is missing between them"


_VECTOR = (
    "L0 of a compute unit",
    "GLV_INV of an ACQUIRE_MEM or RELEASE_MEM",
    "global_inv scope:SCOPE_DEV (or SE, within a workgroup)",
)
_SCALAR = (
    "scalar cache of a workgroup processor",
    "GLK_INV of an ACQUIRE_MEM or RELEASE_MEM",
    "s_dcache_inv",
)
