"""AMD graphics chips by PCI device id, for machines whose KFD says nothing: the driver may never have started.

Ids: the `amdgpu.ids` of libdrm and the PCI id database. Kernels: the version of Linux whose amdgpu first drives it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    arch: str
    name: str
    kernel: tuple[int, int]
    apu: bool = False


CHIPS: dict[int, Chip] = {
    0x7550: Chip("gfx1201", "Navi 48 (RX 9070 series)", (6, 12)),
    0x7551: Chip("gfx1201", "Navi 48 (R9700)", (6, 12)),
    0x7590: Chip("gfx1200", "Navi 44 (RX 9060 series)", (6, 12)),
    0x744C: Chip("gfx1100", "Navi 31 (RX 7900 series)", (6, 0)),
    0x7448: Chip("gfx1100", "Navi 31 (PRO W7900)", (6, 0)),
    0x745E: Chip("gfx1100", "Navi 31 (PRO W7800)", (6, 0)),
    0x747E: Chip("gfx1101", "Navi 32 (RX 7700, 7800)", (6, 2)),
    0x7470: Chip("gfx1101", "Navi 32 (PRO W7700)", (6, 2)),
    0x7480: Chip("gfx1102", "Navi 33 (RX 7600)", (6, 1)),
    0x7483: Chip("gfx1102", "Navi 33", (6, 1)),
    0x15BF: Chip("gfx1103", "Phoenix (780M)", (6, 1), apu=True),
    0x1900: Chip("gfx1103", "Hawk Point (780M)", (6, 1), apu=True),
    0x150E: Chip("gfx1150", "Strix Point (890M)", (6, 9), apu=True),
    0x1586: Chip("gfx1151", "Strix Halo (8060S)", (6, 9), apu=True),
    0x1114: Chip("gfx1152", "Krackan Point (860M)", (6, 10), apu=True),
    0x164E: Chip("gfx1036", "Raphael", (5, 18), apu=True),
    0x13C0: Chip("gfx1036", "Granite Ridge", (6, 8), apu=True),
    0x1681: Chip("gfx1035", "Rembrandt (680M)", (5, 17), apu=True),
    0x73BF: Chip("gfx1030", "Navi 21 (RX 6800, 6900)", (5, 9)),
    0x73DF: Chip("gfx1031", "Navi 22 (RX 6700)", (5, 11)),
    0x73FF: Chip("gfx1032", "Navi 23 (RX 6600)", (5, 12)),
    0x731F: Chip("gfx1010", "Navi 10 (RX 5700)", (5, 3)),
}
FAMILIES = ("gfx11", "gfx12")  # those whose packets this version writes (PACKETS_KNOWN in kmd/discover.py)


def supported(arch: str) -> bool:
    return arch.startswith(FAMILIES)
