"""Which chip's code it is, and how wide its waves are."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.errors import UnsupportedError, UsageError

GENERATIONS = {
    "gfx1100": 11, "gfx1101": 11, "gfx1102": 11, "gfx1103": 11, "gfx1200": 12, "gfx1201": 12,
    "gfx11-generic": 11, "gfx12-generic": 12,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """The chip's generation, 11 (RDNA3) or 12 (RDNA4), and the width of its waves, 32 or 64."""

    generation: int = 12
    wave: int = 32

    @property
    def mask_width(self) -> int:
        """The dwords of a lane mask."""
        return self.wave // 32


def target_of(arch: str, wave: int = 32) -> Target:
    if arch not in GENERATIONS:
        raise UnsupportedError(
            f"{arch}: its instructions are not built in this version", next=f"use {', '.join(GENERATIONS)}"
        )
    if wave not in (32, 64):
        raise UsageError(f"wave {wave}", next="use 32 or 64")
    return Target(GENERATIONS[arch], wave)
