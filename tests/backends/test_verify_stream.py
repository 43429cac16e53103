"""A program whose dwords are not what its kernels and nodes need is refused, with the dispatch's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.amd import command_stream
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.model.gguf import read_gguf
from zinc_rt.pm4.packet import EncodeError, Packet
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, DispatchIndirect, EventWrite, SetShReg
from zinc_rt.pm4.registers import WAVE64, Sh
from zinc_rt.sim.in_process import SimDriver

MODEL = Path(__file__).resolve().parents[2] / "golden" / "qwen3-q.gguf"
Change = Callable[[list[Packet]], None]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    driver = SimDriver()
    backend = open_t1(driver, AmdOptions("canonical-1", find_kernel_set("gfx1201"), hang_folder=None))
    with Engine(read_gguf(MODEL), backend) as engine:
        yield engine
    driver.close_all()


def change_last_register(offset: int, change: Callable[[int], int]) -> Change:
    """Change the value that the last SET_SH_REG of a register sets."""

    def apply_change(packets: list[Packet]) -> None:
        for index in reversed(range(len(packets))):
            packet = packets[index]
            if isinstance(packet, SetShReg) and packet.register <= offset < packet.register + len(packet.values):
                values = list(packet.values)
                values[offset - packet.register] = change(values[offset - packet.register])
                packets[index] = SetShReg(packet.register, tuple(values))
                return
        raise AssertionError(f"nothing sets SH+{offset:#x}")

    return apply_change


def change_first_packet(kind: type[Packet], change: Callable[[Any], Packet | None]) -> Change:
    def apply_change(packets: list[Packet]) -> None:
        index = next(index for index, packet in enumerate(packets) if isinstance(packet, kind))
        changed = change(packets[index])
        # the places of dispatches are given by index: what goes becomes another packet
        packets[index] = changed if changed is not None else SetShReg(Sh.RESTART_X, (0, 0, 0))

    return apply_change


def swap_last_pair(packets: list[Packet]) -> None:
    """Swap the last two registers that are set together."""
    for index in reversed(range(len(packets))):
        packet = packets[index]
        if isinstance(packet, SetShReg) and packet.register == Sh.PGM_RSRC1:
            packets[index] = SetShReg(packet.register, packet.values[::-1])
            return
    raise AssertionError("nothing sets PGM_RSRC1")


FAULTS: dict[str, tuple[Change, str]] = {
    "another kernel's code": (change_last_register(Sh.PGM_LO, lambda v: v + 1), "code at"),
    "a workgroup of another size": (change_last_register(Sh.NUM_THREAD_X, lambda v: v // 2), "a workgroup of"),
    "too few vector registers": (
        change_last_register(Sh.PGM_RSRC1, lambda v: v & ~0x3F),
        "vector registers, it uses",
    ),
    "LDS of another size": (
        change_last_register(Sh.PGM_RSRC2, lambda v: v ^ 1 << 15),
        "LDS in units of 512 bytes",
    ),
    "no workgroup id on y": (
        change_last_register(Sh.PGM_RSRC2, lambda v: v & ~(1 << 8)),
        "workgroup ids enabled: xz",
    ),
    "one user register": (change_last_register(Sh.PGM_RSRC2, lambda v: v ^ 3 << 1), "user registers"),
    "RSRC1 and RSRC2 swapped": (swap_last_pair, "PGM_RSRC1 holds what its container has for PGM_RSRC2"),
    "scratch": (change_last_register(Sh.PGM_RSRC2, lambda v: v | 1), "scratch: True"),
    "work-item ids on y": (
        change_last_register(Sh.PGM_RSRC2, lambda v: v ^ 1 << 11),
        "work-item ids for axes beyond x",
    ),
    "another launch's arguments": (change_last_register(Sh.USER_DATA_0, lambda v: v + 64), "arguments at"),
    "waves of 64": (change_first_packet(DispatchDirect, lambda p: replace(p, initiator=WAVE64)), "waves of 64"),
    "a grid of one row more": (
        change_first_packet(DispatchDirect, lambda p: replace(p, dim_x=p.dim_x + 1)),
        "its grid is",
    ),
    "another grid in memory": (
        change_first_packet(DispatchIndirect, lambda p: replace(p, address=p.address + 16)),
        "grid is at",
    ),
    "a wait forgotten": (change_first_packet(EventWrite, lambda p: None), "which"),
    "an invalidation forgotten": (change_first_packet(AcquireMem, lambda p: None), "which"),
}


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("fault", FAULTS)
def test_stream_fault_is_reported(engine: Engine, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    change, output = FAULTS[fault]
    written = command_stream.build_packets

    def build_faulty_program(*given: Any, **more: Any) -> PacketList:
        program = written(*given, **more)
        packets = list(program.packets)
        change(packets)
        return replace(program, packets=tuple(packets))

    monkeypatch.setattr(command_stream, "build_packets", build_faulty_program)
    with pytest.raises(EncodeError, match=output) as error:
        engine.variants.get("prefill", (16, 1, 1))
    assert " for " in str(error.value)


def test_unmodified_stream_passes_and_runs(engine: Engine) -> None:
    assert engine.forward([1, 2, 3]).shape[-1] > 0


@pytest.mark.rest
def test_several_nodes_may_read_a_temporary_after_one_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The projections of a norm read its rounded rows, which the first of their nodes makes."""
    driver = SimDriver()
    backend = open_t1(driver, AmdOptions("canonical-1", find_kernel_set("gfx1201"), hang_folder=None))
    options = EngineOptions(prefill_ordering="wmma-f16")
    with Engine(read_gguf(MODEL.with_name("qwen35moe-q.gguf")), backend, options=options) as engine:
        engine.variants.get("prompt", (16, 1, 1))
        written, errors = command_stream.build_packets, []
        for flush in range(2, 5):

            def build_without_flush(*given: Any, flush: int = flush, **more: Any) -> PacketList:
                program = written(*given, **more)
                packets = list(program.packets)
                index = [index for index, packet in enumerate(packets) if isinstance(packet, EventWrite)][flush]
                packets[index] = SetShReg(Sh.RESTART_X, (0, 0, 0))
                return replace(program, packets=tuple(packets))

            monkeypatch.setattr(command_stream, "build_packets", build_without_flush)
            with pytest.raises(EncodeError) as error:
                engine.variants.get("prompt", (16 + 16 * flush, 1, 1))
            errors.append(str(error.value))
    driver.close_all()
    assert any("of round_rows_f16, which may still run" in text for text in errors), errors
