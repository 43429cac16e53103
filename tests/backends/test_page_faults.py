"""A page fault's report: what any driver tells, and apart from it what a simulated device saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu, FakeSide

from zinc_rt.backends import registry
from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.hang import Hang, HangReport
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.backends.base import Device
from zinc_rt.exec import Buffer, Stream
from zinc_rt.pm4.packets import DispatchDirect, Nop, SetShReg, WriteData
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions

NOWHERE = 0x6000_0000_0000


def store_v0() -> bytes:
    """v1 = 4 * v0; global_store_b32 v1, v0, s[0:1]; s_endpgm."""
    words = (0x30020082, 0xEE068000, 0x00000000, 0x00000001, 0xBFB00000)
    return b"".join(word.to_bytes(4, "little") for word in words)


@pytest.fixture(params=[open_t1, open_t2], ids=["t1", "t2"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    driver = SimDriver(time_scale=0.01)
    backend: AmdBackend = request.param(
        driver, AmdOptions(hang_folder=tmp_path / "hangs", timeout_seconds=5.0, debug=False)
    )
    yield backend
    try:
        backend.close(drain_seconds=0.0)
    finally:
        driver.close_all()


def hang_report(
    backend: AmdBackend, *packets: Any, name: str, freed: Buffer | None = None
) -> tuple[HangReport, dict[str, Any], str]:
    """Return the report as an object and as its files. `freed`: buffers freed between building and running."""
    stream = Stream("main")
    backend.submit(backend.build(PacketList((Nop(),), "first"), {}), stream).wait(20.0)  # the queue is there
    variant = backend.build(PacketList(packets, name), {})
    if freed is not None:
        backend.free(freed)
    with pytest.raises(Hang) as caught:
        backend.submit(variant, stream).wait(20.0)
    bundle = caught.value.bundle
    assert bundle is not None
    return (
        caught.value.report,
        json.loads((bundle / "report.json").read_text())["faults"][0],
        (bundle / "report.txt").read_text(),
    )


def test_packet_fault_names_packet_dword_and_byte(backend: AmdBackend) -> None:
    target = backend.alloc(4096, "host_visible", "target")
    assert target.gpu_va is not None
    va = target.gpu_va + (1 << 40)
    report, data, text = hang_report(backend, Nop(), WriteData(va + 12, (1,)), name="culprit")
    seen = report.faults[0].seen
    assert seen is not None and (seen.va, seen.access, seen.why) == (va + 12, "write", "not present")
    assert "WRITE_DATA at IB" in seen.packet and seen.program == "culprit" and seen.dispatch is None
    assert seen.kernel == "" and seen.pc is None and seen.wave is None
    assert data["seen"]["packet"] == seen.packet and data["va"] == va + 12 & -4096
    assert "seen     by the simulated device; of this a GPU tells only the page and why" in text
    assert f"write at {va + 12:#x}" in report.why and "the simulated device" in report.why


@pytest.mark.rest(keep=1)
def test_wave_fault_names_dispatch_instruction_wave_and_lanes(backend: AmdBackend) -> None:
    code = backend.alloc(4096, "device_local", "code")
    out = backend.alloc(4096, "host_visible", "out")
    gone = backend.alloc(4096, "host_visible", "gone")
    assert code.gpu_va is not None and out.gpu_va is not None and gone.gpu_va is not None
    backend._write_content(code.gpu_va, np.frombuffer(store_v0(), np.uint8))
    launch = [
        SetShReg(Sh.PGM_LO, (code.gpu_va >> 8 & 0xFFFFFFFF, code.gpu_va >> 40)),
        SetShReg(Sh.PGM_RSRC1, (0xF0 << 12 | 3, 2 << 1)),
        SetShReg(Sh.START_X, (0, 0, 0, 32, 1, 1)),
    ]
    good, bad = out.gpu_va, gone.gpu_va
    packets = [
        *launch,
        SetShReg(Sh.USER_DATA_0, (good & 0xFFFFFFFF, good >> 32)),
        DispatchDirect(1, 1, 1, 0x8005),
        SetShReg(Sh.USER_DATA_0, (bad & 0xFFFFFFFF, bad >> 32)),
        DispatchDirect(1, 1, 1, 0x8005),
    ]
    report, data, text = hang_report(backend, *packets, name="two launches", freed=gone)
    seen = report.faults[0].seen
    assert seen is not None
    assert (seen.program, seen.dispatch, seen.dispatches) == ("two launches", 1, 2)
    assert (seen.access, seen.va) == ("store", bad)
    assert (seen.pc, seen.instruction) == (4, "global_store_b32 v1, v0, s[0:1]")
    assert (seen.group, seen.wave, seen.lanes) == ((0, 0, 0), 0, 0xFFFFFFFF)
    assert "in no allocation" in seen.allocation and "which was freed" in seen.near
    assert data["seen"]["lanes"] == 0xFFFFFFFF and data["seen"]["dispatch"] == 1
    assert "dispatch 1 (from 0) of 2 in two launches" in text
    assert "wave      0 of workgroup (0, 0, 0), 32 lanes from 0" in text


@pytest.mark.rest
def test_hang_report_shows_wave_positions(tmp_path: Path) -> None:
    """Only a simulated device can: the loop, what leaves it, the registers of its condition."""
    driver = SimDriver(time_scale=0.01)
    try:
        backend = open_t1(driver, AmdOptions(hang_folder=tmp_path, timeout_seconds=2.0, debug=False))
        code = backend.alloc(4096, "device_local", "code")
        assert code.gpu_va is not None
        words = (0xBF068002, 0xBFA1FFFE, 0xBFB00000)  # s_cmp_eq_u32 s2, 0; s_cbranch_scc0 back; s_endpgm
        backend._write_content(
            code.gpu_va, np.frombuffer(b"".join(word.to_bytes(4, "little") for word in words), np.uint8)
        )

        program = code.gpu_va >> 8

        def build_launch(s2: int) -> PacketList:
            packets = (
                SetShReg(Sh.PGM_LO, (program & 0xFFFFFFFF, program >> 32)),
                SetShReg(Sh.PGM_RSRC1, (0xF0 << 12 | 3, 3 << 1)),
                SetShReg(Sh.START_X, (0, 0, 0, 32, 1, 1)),
                SetShReg(Sh.USER_DATA_0, (0, 0, s2)),
                DispatchDirect(2, 1, 1, 0x8005),
            )
            return PacketList(packets, "endless" if s2 else "ends")

        stream = Stream("main")
        backend.submit(backend.build(build_launch(0), {}), stream).wait(20.0)  # compiled: the next begins at once
        with pytest.raises(Hang) as caught:
            backend.submit(backend.build(build_launch(77), {}), stream).wait(2.0)
        [message] = caught.value.report.waves
        assert "pc 0x0 `s_cmp_eq_u32 s2, 0`" in message and "the exit conditions depend on s2 = 0x4d" in message
        assert "1 more wave at the same place" in message
        bundle = caught.value.bundle
        assert bundle is not None and "wave     " in (bundle / "report.txt").read_text()
        assert json.loads((bundle / "report.json").read_text())["waves"] == [message]
        backend.close(drain_seconds=0.0)
    finally:
        driver.close_all()


def test_freed_buffer_is_reported_as_freed(backend: AmdBackend) -> None:
    gone = backend.alloc(8192, "host_visible", "gone")
    assert gone.gpu_va is not None
    packet = WriteData(gone.gpu_va + 0x40, (1,))
    report, _, text = hang_report(backend, packet, name="late", freed=gone)
    seen = report.faults[0].seen
    assert seen is not None and "+0x40, which was freed" in seen.near and seen.near in text


def test_fault_of_second_backend_at_the_same_address_is_reported(tmp_path: Path) -> None:
    machine = SimMachine(MachineOptions(time_scale=0.01))
    for _ in range(2):
        driver = SimDriver(machine)
        result = open_t1(driver, AmdOptions(hang_folder=tmp_path, timeout_seconds=5.0, debug=False))
        report, _, _ = hang_report(result, WriteData(NOWHERE, (1,)), name="again")
        assert report.faults[0].seen is not None and report.faults[0].seen.program == "again"
        result.close(drain_seconds=0.0)
        driver.close_all()
    machine.close()


def test_hardware_fault_reports_only_the_page(tmp_path: Path) -> None:
    backend = AmdBackend(
        FakeSide(FakeGpu(kind="kfd")),
        registry.spec("t1"),
        Device("fake", "gfx1201", simulated=False),
        AmdOptions(hang_folder=tmp_path, ring_bytes=4096, timeout_seconds=0.05, debug=False),
    )
    report, data, text = hang_report(backend, WriteData(NOWHERE, (1,)), name="culprit")
    assert report.faults[0].seen is None and data["seen"] is None
    assert "seen     nothing more: a GPU tells the page and why, not who" in text and "--bisect" in text
    backend.close(drain_seconds=0.0)


def test_neighbouring_allocations_of_an_unmapped_address_are_reported() -> None:
    map_ = AddressMap()
    map_.add(0x10000, 0x4000, "pool")
    map_.add(0x13000, 0x1000, "tail")
    map_.add(0x20000, 0x1000, "next")
    assert map_.describe(0x14010) == "in no allocation: 0x10 bytes past the end of tail, 0xbff0 bytes before next"
    assert map_.describe(0x13010) == "tail+0x10"
    assert map_.describe(NOWHERE) == "in no allocation, and none is nearby"
