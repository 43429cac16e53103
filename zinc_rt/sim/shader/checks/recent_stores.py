"""History of recent stores, used to name the writer of a stale line and the missing invalidation."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from zinc_rt.isa.wave_rules import WaveRules
from zinc_rt.sim.shader_engine import Accesses, Ranges, ShaderDispatch

KEPT = 1024  # dispatches


@dataclass(frozen=True, slots=True)
class _Dispatch:
    serial: int
    name: str
    stored: Ranges


class RecentStores:
    """Recent stores of one address space's dispatches, in completion order. `rules` of the waves that store."""

    def __init__(self, rules: WaveRules) -> None:
        self._rules = rules
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

    def explain_value(self, va: int, filled: int, cache_number: int, *, from_stale: bool) -> str:
        """Describe a stale line at a VA of a cache (VECTOR or SCALAR), loaded by the dispatch with serial `filled`
        and read by the newest dispatch. `from_stale`: it was loaded from a stale line of GL1.
        """
        cache_number = ARRAY if from_stale else cache_number
        cache, operation = _CACHES[cache_number]
        instruction = self._rules.invalidations[cache_number]
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
VECTOR, SCALAR, ARRAY = range(3)
_CACHES = (  # name, the operation of the command processor
    ("L0 of a compute unit", "GLV_INV of an ACQUIRE_MEM or RELEASE_MEM"),
    ("scalar cache of a workgroup processor", "GLK_INV of an ACQUIRE_MEM or RELEASE_MEM"),
    ("GL1 of a shader array", "GL1_INV of an ACQUIRE_MEM or RELEASE_MEM"),
)
