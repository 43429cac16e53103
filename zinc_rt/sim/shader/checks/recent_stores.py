"""History of recent stores, used to name the writer of a stale line and the missing invalidation."""

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
    """Recent stores of one address space's dispatches, in completion order."""

    def __init__(self) -> None:
        self._dispatches: deque[_Dispatch] = deque(maxlen=KEPT)

    def add(self, dispatch: ShaderDispatch, serial: int, accesses: Accesses) -> None:
        """Add the accesses of a dispatch. `serial` is the engine's number of the dispatch."""
        name = f"{dispatch.space.describe(dispatch.program_va)} of {dispatch.label}"
        self._dispatches.append(_Dispatch(serial, name, accesses.writes + accesses.atomics))

    def find_writer(self, va: int) -> str:
        """Return the last writer of the address."""
        writer = self._find_writer(va, 0)
        return _NO_WAVE if writer is None else writer.name

    def _find_writer(self, va: int, since: int) -> _Dispatch | None:
        for dispatch in reversed(self._dispatches):
            if dispatch.serial >= since and any(start <= va < start + size for start, size in dispatch.stored):
                return dispatch
        return None

    def explain_value(self, va: int, filled: int, *, scalar: bool) -> str:
        """Describe a stale line at a VA, loaded by the dispatch with serial `filled` and read by the newest
        dispatch.
        """
        cache, operation, instruction = _SCALAR if scalar else _VECTOR
        by = next(
            (dispatch.name for dispatch in self._dispatches if dispatch.serial == filled), "an earlier dispatch"
        )
        held, writer = f"the {cache} has cached this line since {by}", self._find_writer(va, filled)
        if writer is self._dispatches[-1]:
            return (
                f"{held}; waves of this dispatch have stored to it since: {instruction} is missing before the load"
            )
        name = _NO_WAVE if writer is None else writer.name
        return f"{held}; {name} has stored to it since: {operation} is missing between them"


_NO_WAVE = "the host, the command processor or DMA"
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
