"""AMD graphics chips by PCI device id, for machines without KFD data, whose driver may never have
initialised.

Ids: `amdgpu.ids` of libdrm and the PCI id database. Kernels: the version of Linux whose amdgpu first
supports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from zinc_rt.isa.target import parse_major_version
from zinc_rt.kmd.discover import PACKETS_KNOWN


@dataclass(frozen=True, slots=True)
class KnownChip:
    arch: str
    name: str
    linux: tuple[int, int]  # the first release whose amdgpu drives it
    apu: bool = False


CHIPS: dict[int, KnownChip] = {
    0x7550: KnownChip("gfx1201", "Navi 48 (RX 9070 series)", (6, 12)),
    0x7551: KnownChip("gfx1201", "Navi 48 (R9700)", (6, 12)),
    0x7590: KnownChip("gfx1200", "Navi 44 (RX 9060 series)", (6, 12)),
    0x744C: KnownChip("gfx1100", "Navi 31 (RX 7900 series)", (6, 0)),
    0x7448: KnownChip("gfx1100", "Navi 31 (PRO W7900)", (6, 0)),
    0x745E: KnownChip("gfx1100", "Navi 31 (PRO W7800)", (6, 0)),
    0x747E: KnownChip("gfx1101", "Navi 32 (RX 7700, 7800)", (6, 2)),
    0x7470: KnownChip("gfx1101", "Navi 32 (PRO W7700)", (6, 2)),
    0x7480: KnownChip("gfx1102", "Navi 33 (RX 7600)", (6, 1)),
    0x7483: KnownChip("gfx1102", "Navi 33", (6, 1)),
    0x15BF: KnownChip("gfx1103", "Phoenix (780M)", (6, 1), apu=True),
    0x1900: KnownChip("gfx1103", "Hawk Point (780M)", (6, 1), apu=True),
    0x150E: KnownChip("gfx1150", "Strix Point (890M)", (6, 9), apu=True),
    0x1586: KnownChip("gfx1151", "Strix Halo (8060S)", (6, 9), apu=True),
    0x1114: KnownChip("gfx1152", "Krackan Point (860M)", (6, 10), apu=True),
    0x164E: KnownChip("gfx1036", "Raphael", (5, 18), apu=True),
    0x13C0: KnownChip("gfx1036", "Granite Ridge", (6, 8), apu=True),
    0x1681: KnownChip("gfx1035", "Rembrandt (680M)", (5, 17), apu=True),
    0x73BF: KnownChip("gfx1030", "Navi 21 (RX 6800, 6900)", (5, 9)),
    0x73DF: KnownChip("gfx1031", "Navi 22 (RX 6700)", (5, 11)),
    0x73FF: KnownChip("gfx1032", "Navi 23 (RX 6600)", (5, 12)),
    0x731F: KnownChip("gfx1010", "Navi 10 (RX 5700)", (5, 3)),
}
OLDER_IDS = frozenset((*range(0x6600, 0x7000), 0x7300))  # GCN 1 to 5: Oland, Hawaii, Polaris, Vega; Fiji
CODENAMES = (  # lspci without -nn names no ids
    ("Navi 48", 0x7550), ("Navi 44", 0x7590), ("Navi 31", 0x744C), ("Navi 32", 0x747E), ("Navi 33", 0x7480),
    ("Strix Halo", 0x1586), ("Strix", 0x150E), ("Krackan", 0x1114), ("Phoenix", 0x15BF), ("HawkPoint", 0x1900),
    ("Raphael", 0x164E), ("Granite Ridge", 0x13C0), ("Rembrandt", 0x1681), ("Navi 21", 0x73BF),
    ("Navi 22", 0x73DF),
    ("Navi 23", 0x73FF), ("Navi 10", 0x731F), ("Oland", 0x6610), ("Cape Verde", 0x683D), ("Pitcairn", 0x6818),
    ("Tahiti", 0x6798), ("Bonaire", 0x6658), ("Hawaii", 0x67B0), ("Tonga", 0x6938), ("Fiji", 0x7300),
    ("Ellesmere", 0x67DF), ("Baffin", 0x67EF), ("Lexa", 0x699F), ("Vega 10", 0x687F), ("Vega 12", 0x69AF),
    ("Vega 20", 0x66AF),
)  # fmt: skip


def find_by_title(title: str) -> int | None:
    """Return a device id for an lspci name; `Device 7551` if its database is old."""
    matched = re.search(r"Device ([0-9a-f]{4})\b", title)
    if matched and int(matched[1], 16) in CHIPS:
        return int(matched[1], 16)
    if "R9700" in title:
        return 0x7551
    return next((device for name, device in CODENAMES if name in title), None)


def is_supported(arch: str) -> bool:
    return parse_major_version(arch) in PACKETS_KNOWN
