"""Sizes of the context save area, against those worked out from the kernel's arithmetic part by part."""

from __future__ import annotations

import pytest
from fake_driver import R9700

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.cwsr import list_cwsr_sizes
from zinc_rt.kmd.topology import TopologyNode


def topology_node(target: int, units: int, **more: int) -> TopologyNode:
    changed = {"gfx_target_version": target, "simd_count": 2 * units, "simd_per_cu": 2}
    return TopologyNode(1, 0x1234, "chip", {**R9700, **changed, **more})


TABLE = [  # part, target, CUs: control stack, save area with it, buffer
    ("R9700", 120001, 64, [(0x7000, 0x1D47000, 0x1D57000)]),
    ("9070", 120001, 56, [(0x6000, 0x199E000, 0x19AC000)]),
    ("9060", 120000, 32, [(0x4000, 0xEA4000, 0xEAC000)]),
    ("7900 XTX", 110000, 96, [(0xA000, 0x2BEA000, 0x2C02000)]),
    ("Strix Halo", 110501, 40, [(0x4000, 0xD4C000, 0xD56000), (0x4000, 0x124C000, 0x1256000)]),
]


@pytest.mark.parametrize(("part", "target", "units", "wanted"), TABLE)
def test_computed_sizes(part: str, target: int, units: int, wanted: list[tuple[int, int, int]]) -> None:
    got = list_cwsr_sizes(topology_node(target, units))
    assert [(item.control_stack_bytes, item.save_bytes, item.buffer_bytes) for item in got] == wanted


def test_topology_node_sizes_take_precedence() -> None:
    (sizes,) = list_cwsr_sizes(topology_node(110501, 40, cwsr_size=0x124C000, ctl_stack_size=0x4000))
    assert (sizes.save_bytes, sizes.buffer_bytes, sizes.source) == (0x124C000, 0x1256000, "topology node")


def test_single_topology_size_is_ignored() -> None:
    (sizes,) = list_cwsr_sizes(topology_node(120001, 64, cwsr_size=0x124C000))
    assert sizes.source == "computed"


def test_gfx10_control_stack_is_capped() -> None:
    (sizes,) = list_cwsr_sizes(topology_node(100300, 80))
    assert sizes.control_stack_bytes == 0x7000


def test_older_chips_are_rejected() -> None:
    with pytest.raises(UnsupportedError, match="gfx90a"):
        list_cwsr_sizes(topology_node(90010, 104))
