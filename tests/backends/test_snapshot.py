"""Streams, events and copies on every tier that needs no GPU: a state is saved beside the work, and restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.exec import Buffer, Event, Graph, Stream, copy
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.lower import lower
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import plan_memory
from zinc_rt.sim.in_process import SimDriver

COUNT = 5000  # floats, in several workgroups
BYTES = 4 * COUNT
PATIENCE = 60.0
ORDERING = "canonical-1"


def open_simulated(opener: Callable[..., Any]) -> Any:
    driver = SimDriver()
    return opener(driver, AmdOptions(ORDERING, find_kernel_set("gfx1201")), after=driver.close_all)


OPENERS: dict[str, Callable[[], Any]] = {
    "t_cpu": lambda: CpuBackend(ORDERING),
    "t1": lambda: open_simulated(open_t1),
    "t2": lambda: open_simulated(open_t2),
}


class Machine:
    """next = state + step, then the state becomes the next one by a copy on the device."""

    def __init__(self, tier: str) -> None:
        self.backend = OPENERS[tier]()
        builder = Builder("advance")
        builder.buffer("step.counts", (3,), "i32", "step")
        builder.buffer("state.x", (1, COUNT), "f32", "state")
        builder.buffer("step.a", (1, COUNT), "f32", "step")
        builder.buffer("out.y", (1, COUNT), "f32", "output")
        builder.node(Op.ADD, ("state.x", "step.a"), ("out.y",), label="next")
        graph = builder.build()
        verify_graph(graph)
        plan = plan_memory(graph, capacity={})
        program = lower(graph, self.backend.kernels.entries, plan, ordering=ORDERING, tier=tier)
        own = {n: self.backend.alloc(a.size_bytes, a.heap, n) for n, a in plan.allocations.items()}
        self.graph = Graph("advance", self.backend)
        self.graph.add((1,), self.backend.build(program, own))
        for name, placement in plan.placements.items():
            self.graph.bind(name, own[placement.allocation])
        self.state, self.next = (own[plan.placements[name].allocation] for name in ("state.x", "out.y"))
        self.step_at = plan.placements["step.a"].offset_bytes
        self.saved = self.backend.alloc(BYTES, BufferHeap.DEVICE_LOCAL, "saved")
        self.main, self.side = Stream("main"), Stream("side")

    def run_step(self) -> None:
        self.graph.replay((1,), self.main)
        self.copy(self.next, self.state, self.main)

    def copy(self, source: Buffer, target: Buffer, stream: Stream) -> None:
        copy(self.backend, source, 0, target, 0, BYTES, stream)

    def findings(self) -> list[Any]:
        instrument = self.backend.instrument
        return [] if instrument is None else instrument.findings()

    def read_output(self) -> bytes:
        assert self.main.last is not None
        self.main.last.wait(PATIENCE)
        return bytes(self.graph.view("out.y", 0, BYTES))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", OPENERS)
def test_state_saved_on_a_side_stream_is_restored_bit_for_bit(tier: str) -> None:
    machine = Machine(tier)
    step = np.random.default_rng(1).standard_normal(COUNT, np.float32)
    machine.graph.write("step.a", machine.step_at, step)
    before, saved = Event(), Event()
    machine.run_step()
    before.record(machine.main)
    machine.side.wait(before)
    machine.copy(machine.state, machine.saved, machine.side)  # beside the replay below, which only reads the state
    saved.record(machine.side)
    machine.graph.replay((1,), machine.main)
    machine.main.wait(saved)
    machine.copy(machine.next, machine.state, machine.main)
    machine.run_step()
    first = machine.read_output()
    assert first == (step + step + step).tobytes()

    machine.copy(machine.saved, machine.state, machine.main)
    machine.run_step()
    machine.run_step()
    assert machine.read_output() == first
    assert machine.findings() == []
    machine.backend.close()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", OPENERS)
def test_consecutively_submitted_replays_run_in_order(tier: str) -> None:
    machine = Machine(tier)
    step = np.random.default_rng(2).standard_normal(COUNT, np.float32)
    machine.graph.write("step.a", machine.step_at, step)
    for _ in range(3):  # each writes the same bytes
        machine.graph.replay((1,), machine.main)
    assert machine.read_output() == step.tobytes()
    assert machine.findings() == []
    machine.backend.close()
