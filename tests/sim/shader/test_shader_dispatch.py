"""Waves behind a queue: packets, faults as events, hangs, what the sanitizer says, crashes of the engine."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shader_launch import (
    ENDPGM,
    INITIATOR,
    PARTIAL_TG_EN,
    REVERSE,
    RSRC1,
    SPIN,
    STORE_IDS,
    ShaderStage,
    gpu_of,
    open_machine,
    open_stage,
    parse_dwords,
    split_va,
    wait_until,
)

from zinc_rt.kmd.errors import DriverError, LeakError
from zinc_rt.kmd.transport import Placement
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.serve.client import SimClient
from zinc_rt.sim.shader.run import crash
from zinc_rt.sim.shader.run.engine import GfxEngine
from zinc_rt.sim.shader.run.launch_run import group_order
from zinc_rt.sim.shader_engine import ShaderDispatch

UNMAPPED = 0x6000_0000_0000


@pytest.mark.parametrize("level", ["off", "fast", "full"])
def test_dispatch_stores_its_ids(level: str) -> None:
    with open_machine(sanitizer=level) as owner, open_stage(owner) as s:
        va, out = s.buffer()
        s.run(s.load(STORE_IDS), split_va(va), groups=(3, 1, 1))
        expected = np.arange(32)[None, :] + np.arange(3)[:, None]
        assert np.array_equal(out[:96], expected.reshape(-1)) and not out[96:].any()
        assert not owner.findings


def test_launch_is_repeated_with_new_arguments_and_new_code_in_place() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        (one, first), (two, second) = s.buffer(), s.buffer()
        program = s.load(STORE_IDS)
        for _ in range(3):
            s.run(program, split_va(one), groups=(2, 1, 1))
        s.run(program, split_va(two), groups=(1, 1, 1))
        assert first[63] == 32 and second[31] == 31 and second[32] == 0
        view = s.words(program)
        view[3] = 0x4A040085  # v_add_nc_u32_e32 v2, 5, v0 in place of the workgroup id
        s.run(program, split_va(two), groups=(1, 1, 1))
        assert second[0] == 5, "the instruction cache was invalidated: the new code runs"


def test_waves_of_a_group_meet_at_the_barrier() -> None:
    with open_machine(sanitizer="full") as owner, open_stage(owner) as s:
        va, out = s.buffer()
        s.run(s.load(REVERSE), split_va(va), threads=(64, 1, 1), lds_bytes=256)
        assert np.array_equal(out[:64], np.arange(64)[::-1]), owner.findings
        assert not owner.findings


def test_last_workgroup_may_be_smaller() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        va, out = s.buffer()
        initiator = INITIATOR | PARTIAL_TG_EN
        s.run(s.load(STORE_IDS), split_va(va), groups=(2, 1, 1), threads=(5 << 16 | 32, 1, 1), initiator=initiator)
        assert np.array_equal(out[32:37], 1 + np.arange(5)) and not out[37:].any()


def test_store_to_unmapped_address_faults_the_process_and_names_the_page() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        s.launch(s.load(STORE_IDS), split_va(UNMAPPED))
        assert wait_until(5, lambda: any("page fault" in line for line in owner.dmesg))
        assert any(f"0x{UNMAPPED:016x}" in line and "write" in line for line in owner.dmesg)
        assert not s.done(0.1)


def test_read_past_end_of_allocation_names_instruction_and_buffer() -> None:
    with open_machine(sanitizer="fast") as owner, open_stage(owner) as s:
        va, _ = s.buffer()
        SimDriver(owner, owner.processes[0]).announce(va, 64, "small")
        s.run(s.load(STORE_IDS), split_va(va))
        [finding] = owner.findings
        assert finding.rule == "out-of-bounds"
        for part in ("global_store_b32 v1, v2, s[0:1]", "pc 0x10", "lanes 16-31", "wave 0 of workgroup (0, 0, 0)"):
            assert part in finding.sentence, finding.sentence


def test_uninitialised_register_is_reported_once() -> None:
    reads_v7 = parse_dwords("7e040d07 bfb00000 ; v_cvt_f32_u32 v2, v7")
    with open_machine(sanitizer="fast") as owner, open_stage(owner) as s:
        program = s.load(reads_v7)
        for _ in range(20):
            s.run(program, groups=(8, 1, 1))
        assert {finding.rule for finding in owner.findings} == {"uninitialised-vgpr"}
        assert 1 <= len(owner.findings) <= 5
        assert "v7" in owner.findings[0].sentence


def test_finding_is_delivered_before_the_fence_is_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_machine(sanitizer="fast") as owner, open_stage(owner) as s:
        messages = owner.gpus[0].cp.device.messages
        deliver = messages.deliver

        def deliver_slowly() -> None:
            if len(messages):
                time.sleep(0.1)
            deliver()

        monkeypatch.setattr(messages, "deliver", deliver_slowly)
        s.run(s.load(parse_dwords("7e040d07 bfb00000 ; v_cvt_f32_u32 v2, v7")))
        assert [finding.rule for finding in owner.findings] == ["uninitialised-vgpr"]


def test_register_beyond_the_allocation_is_reported() -> None:
    uses_v40 = parse_dwords("7e500280 bfb00000 ; v_mov_b32 v40, 0")
    with open_machine(sanitizer="fast") as owner, open_stage(owner) as s:
        s.run(s.load(uses_v40), rsrc1=RSRC1 & ~0x3F | 4)
        assert {finding.rule for finding in owner.findings} == {"vgpr-out-of-range"}
        s.run(s.load(uses_v40), rsrc1=RSRC1 & ~0x3F | 5)
        assert len(owner.findings) == 1


def test_illegal_instruction_hangs_wave_and_queue_can_be_destroyed() -> None:
    with open_machine() as owner:
        with open_stage(owner) as s:
            s.launch(s.load(parse_dwords("ffffffff bfb00000")))
            assert not s.done(0.2)
            s.queue.destroy()
        assert owner.gpus[0].resets == 0 and "illegal" in {finding.rule for finding in owner.findings}
        with open_stage(owner) as s:
            s.run(s.load(ENDPGM))


@pytest.mark.rest
def test_endless_wave_can_be_released_by_cpu_or_preempted() -> None:
    with open_machine() as owner:
        with open_stage(owner) as s:
            va, out = s.buffer()
            s.launch(s.load(SPIN), split_va(va), groups=(3, 1, 1))
            assert not s.done(0.2)
            out[0] = 1
            assert s.done() and out[1] == 7
        with open_stage(owner) as s:
            va, out = s.buffer()
            s.launch(s.load(SPIN), split_va(va))
            assert not s.done(0.1)
            s.queue.destroy()
        assert owner.gpus[0].resets == 0 and {finding.rule for finding in owner.findings} <= {"still-running"}


STORES_AND_SPINS = parse_dwords("""
    7e020280                    ; v_mov_b32_e32 v1, 0
    7e040287                    ; v_mov_b32_e32 v2, 7
    ee068000 01000000 00000401  ; global_store_b32 v1, v2, s[0:1] offset:4
    f4000080 f8000000           ; s_load_b32 s2, s[0:1], 0x0
    bfc70000                    ; s_wait_kmcnt 0x0
    bf068002                    ; s_cmp_eq_u32 s2, 0
    bfa2fffb                    ; s_cbranch_scc1 back to the load
    bfb00000                    ; s_endpgm
""")


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("is_requested", [True, False], ids=["asked", "destroyed"])
def test_endless_waves_report_their_location(is_requested: bool) -> None:
    with open_machine() as owner, open_stage(owner) as s:
        va, out = s.buffer()
        s.launch(s.load(STORES_AND_SPINS), split_va(va), groups=(3, 1, 1))
        while out[1] != 7:
            assert not s.done(0.01)

        def are_all_waiting() -> bool:
            """The first wave's store does not affect the other two."""
            if is_requested:
                owner.gpus[0].tell_unfinished()
            return bool(owner.findings) and "2 more waves at the same place" in owner.findings[-1].sentence

        if not is_requested:
            assert not s.done(0.2)
            s.queue.destroy()
        assert wait_until(20, are_all_waiting)
        finding = owner.findings[-1]
        assert finding.rule == "still-running" and finding.place is not None
        assert (finding.place.pc, finding.place.instruction) == (0x14, "s_load_b32 s2, s[0:1], 0x0")
        assert finding.place.lanes == 0xFFFFFFFF and finding.place.wave == 0
        for output in (
            "in a loop of 4 instructions, pc 0x14 to 0x28",
            "with exits at pc 0x24 `s_cbranch_scc1 65531` after `s_cmp_eq_u32 s2, 0`",
            f"the exit conditions depend on s0 = {va & 0xFFFFFFFF:#x}, s1 = {va >> 32:#x}",
        ):
            assert output in finding.sentence, finding.sentence


def test_request_during_kernel_compilation_completes_when_waves_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_machine() as owner, open_stage(owner) as s:
        engine = owner.gpus[0].cp.engine
        assert isinstance(engine, GfxEngine)
        begin, begins = engine._begin, threading.Event()

        def begin_slowly(dispatch: ShaderDispatch) -> Any:
            begins.set()
            time.sleep(0.2)
            return begin(dispatch)

        monkeypatch.setattr(engine, "_begin", begin_slowly)
        s.launch(s.load(STORES_AND_SPINS), split_va(s.buffer()[0]))
        assert begins.wait(20)
        owner.gpus[0].tell_unfinished()
        assert [finding.rule for finding in owner.findings] == ["still-running"]


def test_other_queue_runs_while_one_spins() -> None:
    with open_machine() as owner, open_stage(owner) as spinning, open_stage(owner) as other:
        va, out = spinning.buffer()
        spinning.launch(spinning.load(SPIN), split_va(va))
        for _ in range(3):
            other.run(other.load(STORE_IDS), split_va(other.buffer()[0]))
        out[0] = 1
        assert spinning.done() and out[1] == 7


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"rsrc2": 17 << 1}, "16 user data registers"),
        ({"rsrc2": 1 << 6, "initiator": 5}, "DYNAMIC_VGPR"),
        ({"rsrc2": 200 << 15}, "LDS_SIZE"),
        ({"rsrc2": 1}, "SCRATCH_EN"),
    ],
)
def test_unsupported_register_values_are_rejected_with_a_message(launch: dict[str, Any], message: str) -> None:
    with open_machine() as owner, open_stage(owner) as s:
        s.run(s.load(ENDPGM), **launch)
        assert any(message in finding.sentence for finding in owner.findings), owner.findings


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
def test_gfx11_machine_runs_waves(chip: str) -> None:
    with open_machine(chip=chip) as owner, open_stage(owner) as s:
        s.run(s.load(ENDPGM), groups=(3, 1, 1))
        assert s.rules() == [] and [item.waves for item in owner.gpus[0].profile()] == [3]


def test_executed_waves_are_counted() -> None:
    with open_machine(threads=1) as owner, open_stage(owner) as s:
        va, _ = s.buffer()
        program = s.load(STORE_IDS)
        for _ in range(3):
            s.run(program, split_va(va), groups=(4, 1, 1))
        [counters] = owner.gpus[0].profile()
        assert (counters.dispatches, counters.waves) == (3, 12) and counters.seconds > 0


def test_instructions_and_bytes_are_counted_on_request() -> None:
    with open_machine(profile=True) as owner, open_stage(owner) as s:
        va, _ = s.buffer()
        program = s.load(STORE_IDS)
        for groups in (4, 3):
            s.run(program, split_va(va), groups=(groups, 1, 1))
        [counters] = owner.gpus[0].profile()
        assert counters.instructions == 7 * 6 and counters.bytes == 7 * 32 * 4


def test_executions_and_accessed_buffers_of_a_kernel_are_counted_on_request() -> None:
    """Each wave waits at the barrier once, although it begins that block twice."""
    with open_machine(profile=True, threads=1) as owner, open_stage(owner) as s:
        va, _ = s.buffer()
        driver = SimDriver(owner, owner.processes[0])
        driver.announce(va, 512, "out")
        s.run(s.load(REVERSE), split_va(va), threads=(128, 1, 1), groups=(3, 1, 1), lds_bytes=512)
        [run] = driver.executions()
        assert {item.times for item in run.code} == {3 * 4}
        assert sum(item.end - item.start for item in run.code) == len(REVERSE)
        assert [access.ranges for access in run.accesses] == [((va, va + 512),)]
        assert driver.executions() == []


# lane 0: v_lshl_add_u32 v3, ttmp9, 2, wave; global_atomic_add_u32 v2, v0, 1, s[0:1]; appends v3 at out[1 + v2]
APPEND = parse_dwords(
    "32080085 befe0081 7e000280 7e020281 7e060275 d6460003 04110503 ee0d4000 00900002 "
    "00000000 bfc00000 30040482 ee068000 01800000 00000402 bfb00000 "
)


def test_reorder_runs_workgroups_and_waves_in_another_order() -> None:
    orders = {}
    for seed in (None, 0, 0, 7):
        with open_machine(reorder=seed, threads=1) as owner, open_stage(owner) as s:
            va, out = s.buffer()
            out[:33] = 0
            s.run(s.load(APPEND), split_va(va), groups=(8, 1, 1), threads=(128, 1, 1))
            order = tuple(out[1:33].tolist())
            assert orders.setdefault(seed, order) == order and sorted(order) == list(range(32))
    assert orders[None] == tuple(range(32)) and len(set(orders.values())) == 3
    waves = [orders[7][index : index + 4] for index in range(0, 32, 4)]
    assert all(len({item // 4 for item in group}) == 1 for group in waves), "a workgroup at a time"
    assert len({group[0] % 4 for group in waves}) > 1, "not always the same wave first"


@pytest.mark.parametrize("count", [1, 2, 6, 97, 1000])
def test_order_of_workgroups_is_a_permutation(count: int) -> None:
    assert group_order(count, 0) == (1, 0)
    for seed in range(1, 30):
        step, first = group_order(count, seed)
        assert {(number * step + first) % count for number in range(count)} == set(range(count))


def test_wave_stores_to_vram_reach_the_host_at_a_write_back() -> None:
    with open_machine() as owner, open_stage(owner) as s:
        buffer = s.gpu.alloc(4096, Placement.VRAM_BAR, "vram")
        words = (ctypes.c_uint32 * 64).from_address(buffer.host.address)
        s.run(s.load(STORE_IDS), split_va(buffer.gpu_va), groups=(2, 1, 1))
        assert wait_until(5, lambda: words[63] == 32), list(words)


@pytest.mark.rest
def test_engine_crash_ends_its_process_and_client_gets_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = {"sanitizer": "full", "perturb": 7}
    device = SimClient(name=f"crash-{os.getpid()}", inject=["shader-crash@2"], time_scale=0.02, **options)
    assert device.device.items() >= options.items()
    with contextlib.suppress(LeakError), gpu_of(device) as gpu:
        s = ShaderStage(gpu)
        va, out = s.buffer()
        s.run(s.load(STORE_IDS), split_va(va))
        assert out[31] == 31
        s.launch(s.load(STORE_IDS), split_va(va))
        assert not s.done(0.5)
        with pytest.raises(DriverError) as message:
            gpu.alloc(4096, Placement.GTT, "after")
        with pytest.raises(OSError) as caught:
            device.open("/dev/kfd", os.O_RDWR)
    assert caught.value.errno == errno.ENODEV
    bundles = list((tmp_path / "cache" / "zinc-rt" / "crashes").iterdir())
    assert len(bundles) == 1 and str(bundles[0]) in str(caught.value)
    assert str(bundles[0]) in str(message.value)
    result = crash.read(bundles[0])
    assert result is not None
    about, program = result
    assert program == STORE_IDS and about["groups"] == [1, 1, 1] and "DISPATCH_DIRECT" in about["label"]
    assert "global_store_b32" in crash.format_text(about, program)


def test_in_process_engine_crash_stops_its_queue() -> None:
    with open_machine("shader-crash") as owner, open_stage(owner) as s:
        s.launch(s.load(ENDPGM))
        assert wait_until(5, lambda: any("crashed" in line for line in owner.dmesg))
