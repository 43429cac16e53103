"""Dispatches: grids, what launches nothing, faults of waves."""

from __future__ import annotations

import pytest
from sim.cp.cp_support import (
    CODE,
    DATA,
    FENCE,
    MEMORY_VA,
    AccessCollector,
    CpBench,
    is_finished,
    launch_state,
    make_fence,
)

from zinc_rt.pm4.packets import (
    DispatchDirect,
    DispatchIndirect,
    EventWrite,
    SetShReg,
    WriteData,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.interfaces import AccessKind, QueueState
from zinc_rt.sim.shader_engine import NOTHING, Accesses, ShaderDispatch


def test_dispatch_carries_registers_grid_and_wave_size():
    engine = AccessCollector()
    bench = CpBench(engine=engine)
    bench.queue().submit(
        *launch_state(user=tuple(range(16))),
        SetShReg(Sh.START_X, (7, 8, 9)),
        DispatchDirect(5, 3, 2, 0x8005),
        SetShReg(Sh.USER_DATA_0, (99,)),
        DispatchDirect(1, 1, 1, 0x0001),
    )
    first, second = engine.dispatches
    assert first.program_va == CODE and first.groups == (5, 3, 2) and first.wave32
    assert first.group_threads == (8, 4, 2) == first.last_threads
    assert first.user_data == tuple(range(16)) and first.start == (0, 0, 0)
    assert second.user_data[0] == 99 and not second.wave32 and second.start == (7, 8, 9)


def test_thread_dimensions_round_up_with_partial_last_group():
    engine = AccessCollector()
    bench = CpBench(engine=engine)
    bench.queue().submit(*launch_state((64, 1, 1)), DispatchDirect(130, 1, 1, 0x8021))
    assert engine.dispatches[0].groups == (3, 1, 1) and engine.dispatches[0].last_threads == (2, 1, 1)


def test_indirect_dispatch_reads_grid_when_executed():
    engine = AccessCollector()
    bench = CpBench(engine=engine)
    bench.queue().submit(
        *launch_state(), WriteData(DATA, (4, 5, 6)), DispatchIndirect(DATA, 0x8005), WriteData(DATA, (1, 1, 1))
    )
    assert engine.dispatches[0].groups == (4, 5, 6)


@pytest.mark.parametrize(
    ("packet", "rules"),
    [
        (DispatchDirect(0, 1, 1, 0x8005), []),
        (DispatchDirect(1, 1, 1, 0x8004), ["dispatch-disabled"]),  # errata 3
        (DispatchDirect(1, 1, 1, 0x8005 | 1 << 25), ["reserved-bits"]),
    ],
)
def test_dispatches_that_launch_nothing_are_reported(packet, rules):
    engine = AccessCollector()
    bench = CpBench(engine=engine)
    bench.queue().submit(*launch_state(), packet, make_fence(1))
    assert bench.kmd.rules() == rules and bench.space.u32(FENCE) == 1
    assert len(engine.dispatches) == (rules == ["reserved-bits"])


def test_non_executable_code_faults_at_its_address():
    bench = CpBench(engine=AccessCollector())
    bench.space.allowed[(CODE - MEMORY_VA) // 4096].discard(AccessKind.EXECUTE)
    queue = bench.queue()
    queue.submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005))
    assert queue.state is QueueState.HUNG and bench.kmd.heard[0][0] == "vm_fault"
    assert bench.kmd.heard[0][1][:2] == (CODE, AccessKind.EXECUTE)  # type: ignore[index]


def test_dispatch_without_shader_engine_is_reported_and_completes():
    bench = CpBench()
    bench.queue().submit(
        *launch_state(), DispatchDirect(1, 1, 1, 0x8005), EventWrite.cs_partial_flush(), make_fence(1)
    )
    assert bench.kmd.rules() == ["no-shader-engine"] and bench.space.u32(FENCE) == 1


def test_long_dispatch_blocks_flush_and_fence_only():
    bench = CpBench(engine=AccessCollector(turns=5))
    queue = bench.queue()
    queue.submit(
        *launch_state(),
        DispatchDirect(1, 1, 1, 0x8005),
        WriteData(DATA, (1,)),
        make_fence(2),
        EventWrite.cs_partial_flush(),
        WriteData(DATA + 4, (3,)),
        run=False,
    )
    bench.cp.step(8)
    assert (bench.space.u32(DATA), bench.space.u32(FENCE), bench.space.u32(DATA + 4)) == (1, 0, 0)
    bench.run()
    assert (bench.space.u32(FENCE), bench.space.u32(DATA + 4)) == (2, 3) and is_finished(bench)


def test_shader_fault_stops_queue_and_names_the_dispatch():
    class FaultingEngine(AccessCollector):
        def run(self, dispatch: ShaderDispatch) -> Accesses | None:
            dispatch.space.read(0x40, 4)
            return NOTHING

    bench = CpBench(engine=FaultingEngine())
    queue = bench.queue()
    queue.submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005), make_fence(1))
    assert queue.state is QueueState.HUNG and "DISPATCH_DIRECT" in queue.report
    assert bench.kmd.heard == [("vm_fault", (0x40, AccessKind.READ, "not present"))]
