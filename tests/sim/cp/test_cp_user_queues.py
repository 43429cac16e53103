"""Packets that only user queues take."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import (
    DATA,
    FENCE,
    AccessCollector,
    CpBench,
    launch_state,
    make_fence,
)

from zinc_rt.pm4.packets import (
    DispatchDirect,
    DmaData,
    FenceWaitMulti,
    ProtectedFenceSignal,
)
from zinc_rt.sim.interfaces import QueueKind, QueueState

USERQ = QueueKind.USERQ_COMPUTE


def test_protected_fence_reports_ring_position_to_the_kernel():
    bench = CpBench()
    queue = bench.queue(USERQ)
    queue.submit(make_fence(1), ProtectedFenceSignal())
    assert bench.kmd.heard == [("fence_signal", 10)] and bench.kmd.findings == []
    kfd = bench.queue()
    kfd.submit(ProtectedFenceSignal())
    assert kfd.state is QueueState.HUNG and queue.state is QueueState.ACTIVE


@pytest.mark.parametrize(
    ("packets", "rules"),
    [
        ((make_fence(1),), []),
        ((), ["fence-order"]),
        ((make_fence(1), DmaData(1, DATA, 4, src_sel=2)), ["fence-order"]),
    ],
)
@pytest.mark.parametrize("turns", [1, 5])
def test_protected_fence_after_running_work_requires_a_fence(packets, rules, turns):
    """A dispatch too long for one turn still runs when the packet comes. RELEASE_MEM's event has to stand behind
    it, and behind all that waits its turn since."""
    bench = CpBench(engine=AccessCollector(turns=turns))
    queue = bench.queue(USERQ)
    queue.submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005), *packets, ProtectedFenceSignal())
    while not bench.kmd.heard:
        bench.run(10)
    assert bench.kmd.rules() == (rules if turns > 1 else [])


def test_fence_wait_multi_waits_for_every_fence():
    bench = CpBench()
    queue = bench.queue(USERQ)
    queue.submit(FenceWaitMulti(0, ((DATA, 5), (DATA + 8, 6))), make_fence(1))
    for va, value, expected in ((DATA, 5, 0), (DATA + 8, 5, 0), (DATA + 8, 7, 1)):
        bench.space.write(va, struct.pack("<Q", value))
        bench.run()
        assert bench.space.u32(FENCE) == expected
