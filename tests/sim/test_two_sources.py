"""The tables of the runtime and of the simulated device, field by field: a drift is named with both sources."""

from __future__ import annotations

from types import ModuleType

import pytest
from sim.two_sources import (
    HEADERS,
    all_packet_differences,
    cache_differences,
    interface_differences,
    packet_differences,
    register_differences,
    struct_differences,
    undeclared_names,
)

from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.structs import Struct
from zinc_rt.pm4.packets import PACKETS, WriteData
from zinc_rt.pm4.registers import REGISTERS
from zinc_rt.sim.tables import kfd as sim_kfd
from zinc_rt.sim.tables.packets import ROWS
from zinc_rt.sim.tables.structs import StructLayout


@pytest.mark.parametrize(("runtime", "device", "header"), HEADERS, ids=["kfd", "drm", "amdgpu"])
def test_structs_ioctls_and_constants_agree(runtime: ModuleType, device: ModuleType, header: str) -> None:
    assert list(interface_differences(runtime, device, header)) == []


def test_device_declares_every_struct_and_member_the_runtime_sends() -> None:
    lacking = [item for runtime, device, _ in HEADERS for item in undeclared_names(runtime, device)]
    assert lacking == []


def test_packets_agree() -> None:
    assert list(all_packet_differences()) == []


def test_registers_agree() -> None:
    assert list(register_differences()) == []


def test_cache_operations_agree() -> None:
    assert list(cache_differences()) == []


def test_comparison_is_not_empty() -> None:
    layouts = [
        item for _, device, _ in HEADERS for item in vars(device).values() if isinstance(item, StructLayout)
    ]
    assert len(layouts) >= 60 and sum(len(layout.fields) for layout in layouts) >= 330
    assert len(ROWS) == len(PACKETS) and sum(len(row.fields) for row in ROWS) >= 200
    assert len(REGISTERS) > 90


def test_swapped_members_are_reported_with_both_sources() -> None:
    fields = list(kfd.CREATE_QUEUE.fields.values())
    fields[0], fields[2] = fields[2], fields[0]
    swapped = Struct(kfd.CREATE_QUEUE.c_name, *fields)
    sentences = list(struct_differences(swapped, sim_kfd.CREATE_QUEUE, "CREATE_QUEUE", "kfd_ioctl.h"))
    assert sentences == [
        "CREATE_QUEUE.ring_base_address: runtime says offset 16, simulator's table 0 from kfd_ioctl.h",
        "CREATE_QUEUE.read_pointer_address: runtime says offset 0, simulator's table 16 from kfd_ioctl.h",
    ]


def test_moved_field_and_wrong_opcode_are_reported() -> None:
    (row,) = (row for row in ROWS if row.name == "COPY_DATA")
    sentences = list(packet_differences(WriteData, row))
    assert "COPY_DATA opcode: runtime says 0x37, simulator's table 0x40 from PAL's packet headers" in sentences
    assert any(sentence.startswith("COPY_DATA.src_sel: only the simulator") for sentence in sentences)
    assert any(sentence.startswith("COPY_DATA sizes: runtime says") for sentence in sentences)
