"""Defects of a simulated card, selected by injections: a faulty lane or register, bad VRAM cells, sick sensors.

`--inject NAME@SEED`: the seed selects where the defect is. Defects are what `zinc-rt accept` looks for; they are
not errors of a driver or a packet, which the other injections are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zinc_rt.sim.inject import Injector
    from zinc_rt.sim.memory.buffers import Bo

LANES = 32
FIRST_REGISTER, REGISTERS = 4, 256
DEFECTIVE_BUFFER_BYTES = 1 << 20  # smaller buffers are unaffected: code, arguments, rings
DOORBELLS_BEFORE_FLIP = 8
ANY = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class LaneDefect:
    """Results of `lane` in `register` (ANY: every one) that equal `value` (None: all) become
    (result ^ flip) | stuck."""

    lane: int
    register: int = ANY
    value: int | None = None
    flip: int = 0
    stuck: int = 0


def find_lane_defect(injector: Injector) -> LaneDefect | None:
    """Return the injected defect of the vector ALU or its registers, if any."""
    if injector.on("lane-value"):
        dice = random.Random(injector.number("lane-value"))
        value = dice.randrange(0x0080, 0x7F80) << 16  # an ordinary float whose lower half is 0
        return LaneDefect(dice.randrange(LANES), value=value, flip=1 << dice.randrange(32))
    if injector.on("register-stuck"):
        dice = random.Random(injector.number("register-stuck"))
        register = dice.randrange(FIRST_REGISTER, REGISTERS)
        return LaneDefect(dice.randrange(LANES), register, stuck=1 << dice.randrange(32))
    return None


class VramDefects:
    """Cells of VRAM that lose their contents, between two submissions."""

    def __init__(self, injector: Injector) -> None:
        self._stuck = injector.on("vram-stuck-bit") and random.Random(injector.number("vram-stuck-bit"))
        self._flip = injector.on("vram-bit-flip") and random.Random(injector.number("vram-bit-flip"))
        self._place = self._stuck.random() if self._stuck else 0.0
        self._bit = self._stuck.randrange(8) if self._stuck else 0
        self._doorbells = 0

    def __bool__(self) -> bool:
        return bool(self._stuck or self._flip)

    def apply(self, buffers: list[Bo]) -> None:
        """Change the contents of the largest buffer in VRAM: a stuck bit each time, a bit flip once."""
        large = [bo for bo in buffers if bo.size_bytes >= DEFECTIVE_BUFFER_BYTES]
        if not large:
            return
        view = max(large, key=lambda bo: bo.size_bytes).store.view
        if self._stuck:
            view[int(self._place * len(view))] |= 1 << self._bit
        if self._flip:
            self._doorbells += 1
            if self._doorbells == DOORBELLS_BEFORE_FLIP:
                view[self._flip.randrange(len(view))] ^= 1 << self._flip.randrange(8)
