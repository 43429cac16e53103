"""The fields of a race record's entries, and the other access of a race from them.

An entry has 64 bits: bytes 3:0, wave 9:4 (MANY: several), atomic 10; then for LDS the wave's clock 42:11
(lds_clocks.py) and epoch + 1 63:43, for global memory epoch 23:11, workgroup 47:24, dispatch 63:48.

Beside an entry stands the site of its instruction, the last one where several accesses of a wave, or of several
waves, share the entry. Threads of the host store both without a lock, so that the site may be that of another
access to the dword at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.sim.shader.layout import READS

MANY = 63
WAVE, ATOMIC, EPOCH, GROUP, SERIAL = 4, 10, 11, 24, 48
LDS_CLOCK, LDS_EPOCH = 11, 43
EVERY_GROUP = (1 << 24) - 1  # several workgroups
SITE_BITS = (1 << 28) - 1


@dataclass(frozen=True, slots=True)
class RacingAccess:
    """The other access of a race, from a FINDING: its site, whether it is a read, and whether it is atomic. `wave`
    is the number in its workgroup, `group` the low 24 bits of its linear number; None if several waves or
    workgroups made the access; group is also None for LDS.
    """

    site: int
    reads: bool
    atomic: bool
    wave: int | None
    group: int | None


def decode_racing_access(entry: int, site: int, *, lds: bool) -> RacingAccess:
    """Return the other access from the fields other_entry and other_site of a FINDING."""
    wave, group = entry >> WAVE & 63, entry >> GROUP & EVERY_GROUP
    return RacingAccess(
        site & SITE_BITS,
        bool(site & READS),
        bool(entry >> ATOMIC & 1),
        None if wave == MANY else wave,
        None if lds or group == EVERY_GROUP else group,
    )
