"""The chip generations whose packets differ, and which chip belongs to which."""

from __future__ import annotations

from enum import IntEnum

from zinc_rt.errors import UsageError


class Generation(IntEnum):
    """The graphics IP's major version."""

    GFX11 = 11
    GFX12 = 12


BOTH = (Generation.GFX11, Generation.GFX12)
GFX11 = (Generation.GFX11,)
GFX12 = (Generation.GFX12,)

ARCHITECTURES = {  # LLVM's target names; one row a chip
    "gfx1100": Generation.GFX11,  # Navi 31
    "gfx1101": Generation.GFX11,  # Navi 32
    "gfx1102": Generation.GFX11,  # Navi 33
    "gfx1103": Generation.GFX11,  # Phoenix
    "gfx1150": Generation.GFX11,  # Strix Point
    "gfx1151": Generation.GFX11,  # Strix Halo
    "gfx1200": Generation.GFX12,  # Navi 44
    "gfx1201": Generation.GFX12,  # Navi 48
}


def generation_of(architecture: str) -> Generation:
    """The generation of an LLVM target name. Raises UsageError for one without encoders here."""
    if architecture not in ARCHITECTURES:
        raise UsageError(
            f"no PM4 encoders for {architecture!r}", next=f"one of {', '.join(ARCHITECTURES)} has packet layouts"
        )
    return ARCHITECTURES[architecture]
