"""The chip generations with different packets, and the chips of each generation."""

from __future__ import annotations

from enum import IntEnum

from zinc_rt.host.errors import UsageError
from zinc_rt.isa.target import CHIPS


class Generation(IntEnum):
    """The graphics IP's major version."""

    GFX11 = 11
    GFX12 = 12


BOTH = (Generation.GFX11, Generation.GFX12)
GFX11 = (Generation.GFX11,)
GFX12 = (Generation.GFX12,)

ARCHITECTURES = {chip.name: Generation(chip.generation) for chip in CHIPS}


def generation_of(architecture: str) -> Generation:
    """Return the generation of an LLVM target name. Raise UsageError if there are no encoders for this chip."""
    if architecture not in ARCHITECTURES:
        raise UsageError(
            f"no PM4 encoders for {architecture!r}", next=f"one of {', '.join(ARCHITECTURES)} has packet layouts"
        )
    return ARCHITECTURES[architecture]
