"""A page fault is told as an illegal instruction is: kernel, instruction, wave, lanes, address, what lies near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from shader_launch import STORE_IDS, ShaderStage, open_machine, open_stage, parse_dwords, split_va, wait_until

from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, IndirectBuffer, SetShReg, WriteData
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import AccessKind, DeviceFinding, Fault
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.shader.run.engine_device import EngineDevice

NOWHERE = 0x6000_0000_0000
SCALAR = parse_dwords(
    "f4002080 f8000000 bfc70000 bfb00000 ; s_load_b64 s[2:3], s[0:1], 0x0, s_wait_kmcnt 0x0, s_endpgm"
)
LOAD = parse_dwords(
    "30020082 ee050000 00000002 00000001 bfc00000 bfb00000 ; v1 = 4 * v0, global_load_b32 v2, v1, s[0:1]"
)
ATOMIC = parse_dwords(
    "30020082 7e040281 ee0d4000 01000000 00000001 bfb00000 ; global_atomic_add_u32 v1, v2, s[0:1]"
)
BUFFER = parse_dwords("""
    be880000                    ; s_mov_b32 s8, s0
    be890001                    ; s_mov_b32 s9, s1
    be8a00c1                    ; s_mov_b32 s10, -1: no end
    be8b00ff 30000000           ; s_mov_b32 s11, raw
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    c406807c 40801001 00000001  ; buffer_store_b32 v1, v1, s[8:11], null offen
    bfb00000
""")
FLAT = parse_dwords("""
    30000082                    ; v_lshlrev_b32_e32 v0, 2, v0
    7e0202ff 00006000           ; v_mov_b32_e32 v1, 0x6000
    ec06807c 00000000 00000000  ; flat_store_b32 v[0:1], v0
    bfb00000
""")


def page_faults(owner: SimMachine) -> list[DeviceFinding]:
    return [finding for finding in owner.findings if finding.rule == "page-fault"]


def run_to_fault(
    s: ShaderStage, owner: SimMachine, program: bytes, user_data: Sequence[int], **launch: Any
) -> DeviceFinding:
    return run_address_to_fault(s, owner, s.load(program), user_data, **launch)


def run_address_to_fault(
    s: ShaderStage, owner: SimMachine, program_va: int, user_data: Sequence[int], **launch: Any
) -> DeviceFinding:
    s.launch(program_va, user_data, **launch)
    assert wait_until(20, lambda: bool(page_faults(owner))), owner.dmesg
    [result] = page_faults(owner)
    assert result.severity is Severity.ERROR and result.fault is not None and result.place is not None
    assert wait_until(5, lambda: any("page fault" in line for line in owner.dmesg))
    return result


def buffer_before_unmapped(s: ShaderStage, owner: SimMachine) -> int:
    """A page with no GPU page after it, because mmap may place two buffers next to each other in either order.

    Nothing may be allocated afterwards, because it could be placed there.
    """
    [vm] = [file.vm for file in owner.processes[0].files.values() if isinstance(file, DrmFile)]
    while True:
        va, _ = s.buffer(1024, "out")
        try:
            vm.view(va + 4096, 4, AccessKind.READ)
        except Fault:
            return va


@pytest.mark.parametrize(
    ("program", "access", "pc", "instruction", "lanes"),
    [
        (STORE_IDS, "store", 0x10, "global_store_b32 v1, v2, s[0:1]", 0xFFFFFFFF),
        (LOAD, "load", 4, "global_load_b32 v2, v1, s[0:1]", 0xFFFFFFFF),
        (ATOMIC, "atomic", 8, "global_atomic_add_u32 v1, v2, s[0:1]", 0xFFFFFFFF),
        (SCALAR, "scalar load", 0, "s_load_b64 s[2:3], s[0:1], 0x0", 0),
        (BUFFER, "store", 0x18, "buffer_store_b32 v1, v1, s[8:11], null offen", 0xFFFFFFFF),
        (FLAT, "store", 0xC, "flat_store_b32 v[0:1], v0", 0xFFFFFFFF),
    ],
    ids=["store", "load", "atomic", "scalar", "buffer", "flat"],
)
def test_access_to_unmapped_address_names_instruction_and_wave(
    program: bytes, access: str, pc: int, instruction: str, lanes: int
) -> None:
    with open_machine() as owner, open_stage(owner) as s:
        result = run_to_fault(s, owner, program, split_va(NOWHERE))
        fault, location = result.fault, result.place
        assert fault is not None and location is not None
        assert (fault.access, fault.why, fault.va) == (access, "not present", NOWHERE)
        assert (location.pc, location.instruction, location.lanes) == (pc, instruction, lanes)
        assert (location.group, location.wave, location.address) == ((0, 0, 0), 0, NOWHERE)
        assert "nothing is mapped within 1 GiB" in fault.near
        assert "DISPATCH_DIRECT at ring dword" in fault.by and fault.by in result.sentence
        for part in (f"page-fault at pc 0x{pc:x} `{instruction}`", "wave 0 of workgroup (0, 0, 0)", access):
            assert part in result.sentence, result.sentence


def test_lanes_past_the_end_are_listed_with_the_distance() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        program = s.load(STORE_IDS)
        va = buffer_before_unmapped(s, owner)
        fault = run_address_to_fault(s, owner, program, split_va(va + 4096 - 4 * 20))
        assert fault.place is not None and fault.fault is not None
        assert fault.place.lanes == 0xFFF00000 and fault.fault.va == va + 4096
        assert "0 bytes past the end of gtt" in fault.fault.near and "lanes 20-31" in fault.sentence


def test_fault_names_announced_buffers_and_null_pointers() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        program = s.load(STORE_IDS)
        va = buffer_before_unmapped(s, owner)
        SimDriver(owner, owner.processes[0]).announce(va + 4096 - 64, 64, "the tail")
        result = run_address_to_fault(s, owner, program, split_va(va + 4096 + 256))
        assert result.fault is not None and "256 bytes past the end of the tail" in result.fault.near
    with open_machine() as owner, open_stage(owner) as s:
        result = run_to_fault(s, owner, STORE_IDS, (0, 0))
        assert result.fault is not None and result.fault.near.startswith("unmapped; a null pointer")
        assert result.place is not None and result.place.address == 0 and "address 0x0 (" in result.sentence


def test_freed_buffer_is_named() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        gone = s.gpu.alloc(8192, Placement.GTT, "gone")
        va = gone.gpu_va
        SimDriver(owner, owner.processes[0]).announce(va, 8192, "activations")
        gone.free()
        result = run_to_fault(s, owner, STORE_IDS, split_va(va + 64))
        assert result.fault is not None and "in activations+0x40, which was freed" in result.fault.near


@pytest.mark.parametrize(
    ("program", "rule"), [(STORE_IDS, "page-fault"), (parse_dwords("ffffffff bfb00000"), "illegal")]
)
def test_fatal_queue_error_is_reported_every_time(program: bytes, rule: str) -> None:
    with open_machine() as owner:
        for count in range(1, 7):
            with open_stage(owner) as s:
                s.launch(s.load(program), split_va(NOWHERE))
                assert wait_until(20, lambda: s.rules().count(rule) == count), owner.findings  # noqa: B023


def test_fault_of_deferred_work_names_the_launching_packet() -> None:
    with open_machine(reorder=3) as owner, open_stage(owner) as s:
        result = run_to_fault(s, owner, STORE_IDS, split_va(NOWHERE))
        assert result.place is not None and result.place.pc == 0x10
        assert result.fault is not None and "DISPATCH_DIRECT" in result.fault.by


def test_packet_faults_name_packet_and_dword() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        s.submit(AcquireMem(0x1C1), WriteData(NOWHERE, (1, 2)))
        assert wait_until(5, lambda: bool(page_faults(owner)))
        [result] = page_faults(owner)
        assert result.place is None and result.fault is not None
        assert (result.fault.access, result.fault.va) == ("write", NOWHERE)
        assert result.fault.by == f"queue {result.queue_id} WRITE_DATA at ring dword 0x8 (position 8)"
        assert result.packet_va == s.queue.ring.gpu_va + 4 * 8 and result.position == 8


def test_unmapped_indirect_buffer_is_a_packet_fetch_fault() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        s.submit(AcquireMem(0x1C1), IndirectBuffer(NOWHERE, 64))
        assert wait_until(5, lambda: bool(page_faults(owner)))
        [result] = page_faults(owner)
        assert result.fault is not None and (result.fault.access, result.fault.va) == ("packet fetch", NOWHERE)
        text = f"IB 0x{NOWHERE:x} dword 0x0 (called at ring dword 0x8 (position 8))"
        assert result.fault.by == f"queue {result.queue_id} fetching packets at {text}"


def test_unmapped_program_is_an_execute_fault_of_the_dispatch() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        s.submit(
            SetShReg(Sh.PGM_LO, (NOWHERE >> 8 & 0xFFFFFFFF, NOWHERE >> 40)),
            SetShReg(Sh.START_X, (0, 0, 0, 32, 1, 1)),
            DispatchDirect(1, 1, 1, 0x8005),
        )
        assert wait_until(5, lambda: bool(page_faults(owner)))
        [result] = page_faults(owner)
        assert result.fault is not None and (result.fault.access, result.fault.va) == ("execute", NOWHERE)
        assert "DISPATCH_DIRECT at ring dword" in result.fault.by


def test_exception_has_fault_location_without_a_device() -> None:
    with pytest.raises(Fault, match=r"pc 0x10 `global_store_b32 .*`, wave 0 of workgroup \(0, 0, 0\), all lanes"):
        EngineDevice().run(STORE_IDS, user_data=split_va(NOWHERE))
