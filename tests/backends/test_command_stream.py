"""A dispatch plan as PM4: the block's content, the packets, and which dwords are whose."""

from __future__ import annotations

import struct

import pytest
from lower.chains import ONE, make_chain, plan_chain

from zinc_rt.backends.amd import command_stream
from zinc_rt.backends.amd.loaded_kernels import LoadedKernel
from zinc_rt.backends.amd.packet_list import PacketList, build_ib
from zinc_rt.lower import DispatchPlan, dispatch_plan, plan_block
from zinc_rt.pm4.decode import decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import DispatchDirect, DispatchIndirect, EventWrite, SetShReg
from zinc_rt.pm4.registers import WAVE32, Sh

VA = 0x7_0000_0000
TAKES = {"first": (2, 2), "second": (3, 1), "step_grids": (3, 1)}  # buffers, constants


def build_stream(plan: DispatchPlan) -> PacketList:
    kernels = {
        name: LoadedKernel(name, 0x10_0000_0100 * (1 + index), (1, 2, 3), (32, 1, 1), *TAKES[name])
        for index, name in enumerate(dict.fromkeys(step.launch.kernel for step in plan.dispatches))
    }
    return command_stream.build_packets(plan, VA, kernels, Generation.GFX12)


def test_argument_block_holds_addresses_then_constants() -> None:
    plan = plan_chain((5, 1, 1))
    image = plan_block.build_content(plan, VA, lambda ref: 0x1000 + ref.offset_bytes)
    first, second = [step.arguments_offset - plan.specs_offset for step in plan.dispatches][:2]
    assert struct.unpack_from("<QQIf", image, first) == (0x1000, VA, 7, 1.5)
    assert struct.unpack_from("<QQQI", image, second) == (VA, 0, 0x1010, 0xFFFFFFFF)


def test_fixed_grid_is_encoded_in_the_packet() -> None:
    packets = build_stream(plan_chain((5, "tokens", 1))).packets
    assert packets.count(DispatchDirect(5, 1, 1, WAVE32)) == 4
    assert not any(isinstance(packet, DispatchIndirect) for packet in packets)


def test_data_dependent_grid_is_read_from_the_argument_block() -> None:
    plan = plan_chain((5, "tokens", 3), {**ONE, "tokens": 16})
    grids = [packet for packet in build_stream(plan).packets if isinstance(packet, DispatchIndirect)]
    assert len(grids) == 4 and {grid.address for grid in grids} == {VA + plan.grids_offset}
    image = plan_block.build_content(plan, VA, lambda ref: 0x1000)
    assert struct.unpack_from("<3I", image, 0) == (5, 1 << 31, 3)
    first = next(plan.dispatches)
    assert struct.unpack_from("<QQQI", image, first.arguments_offset - plan.specs_offset) == (
        0x1000, VA + plan.specs_offset, VA + plan.grids_offset, 1,
    )  # fmt: skip


def test_dispatch_sets_only_the_registers_it_changes() -> None:
    packets = build_stream(plan_chain((5, 1, 1), adds=1)).packets
    index = [index for index, packet in enumerate(packets) if isinstance(packet, DispatchDirect)]
    between = packets[index[0] + 1 : index[1]]
    assert isinstance(between[0], EventWrite)
    assert [p.register for p in between if isinstance(p, SetShReg)] == [Sh.PGM_LO, Sh.USER_DATA_0]
    [program] = [p.values for p in between if isinstance(p, SetShReg) and p.register == Sh.PGM_LO]
    assert program[0] | program[1] << 32 == 2 * 0x10_0000_0100 >> 8


@pytest.mark.parametrize("tokens", [1, 16])
def test_first_dword_identifies_every_dispatch(tokens: int) -> None:
    program = make_chain((5, "tokens", 1), {**ONE, "tokens": tokens})
    words, nodes = build_ib(build_stream(dispatch_plan(program)), Generation.GFX12)
    decoded = [
        item.offset
        for item in decode_stream(words, Generation.GFX12)
        if isinstance(item.packet, DispatchDirect | DispatchIndirect)
    ]
    assert [offset for offset, _ in nodes] == decoded
    first, second = (call.node for call in program.calls)
    assert [node for _, node in nodes] == [None] * (tokens > 1) + [first, first, second, second]


def test_argument_count_mismatch_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TAKES, "second", (3, 2))
    with pytest.raises(ValueError, match="second takes 3 buffers and 2 constants, but its row passes 3 and 1"):
        build_stream(plan_chain((5, 1, 1)))
