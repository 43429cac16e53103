"""A lowered graph on the simulated T1: what the device hears of it before it runs, and that it runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.exec import Stream
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.lower import lower
from zinc_rt.mem.heaps import ROLE_HEAPS, BufferHeap
from zinc_rt.mem.plan import plan_memory
from zinc_rt.sim.in_process import SimDriver

pytestmark = pytest.mark.rest

COUNT = 300
OPENERS = {"t1": open_t1, "t2": open_t2}


def test_addition_kernel_is_compiled_as_expected_and_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder("sum")
    for name, role in (("step.a", "step"), ("step.b", "step"), ("out.y", "output")):
        builder.buffer(name, (1, COUNT), "f32", role)  # type: ignore[arg-type]
    builder.node(Op.ADD, ("step.a", "step.b"), ("out.y",), label="sum")
    graph = builder.build()
    plan = plan_memory(graph, capacity={}, heaps={**ROLE_HEAPS, "output": BufferHeap.BAR})
    driver = SimDriver()
    expected: list[KernelToCompile] = []
    announced: list[str] = []
    announce = driver.announce_all

    def record_announced(rows: Sequence[tuple[int, int, str]]) -> None:
        announced.extend(name for _, _, name in rows)
        announce(rows)

    def record_expected(kernels: Sequence[KernelToCompile]) -> None:
        expected.extend(kernels)

    monkeypatch.setattr(driver, "announce_all", record_announced)
    monkeypatch.setattr(driver, "precompile", record_expected)
    with open_t1(driver, AmdOptions("canonical-1", find_kernel_set("gfx1201")), after=driver.close_all) as backend:
        program = lower(graph, backend.kernels.entries, plan, ordering="canonical-1", tier="t1")
        buffers = {n: backend.alloc(a.size_bytes, a.heap, n) for n, a in plan.allocations.items()}
        variant = backend.build(program, buffers)
        assert [item.threads for item in expected] == [(32, 1, 1)]
        assert {"step.a", "step.b", "out.y", "kernel add", "arguments of add for sum"} <= set(announced)
        a, b = np.random.default_rng(1).standard_normal((2, COUNT), np.float32)
        for name, value in (("step.a", a), ("step.b", b)):
            placement = plan.placements[name]
            backend.write(buffers[placement.allocation], placement.offset_bytes, memoryview(value).cast("B"))
        backend.submit(variant, Stream("main")).wait(60.0)
        placement = plan.placements["out.y"]
        seen = backend.read(buffers[placement.allocation], placement.offset_bytes, 4 * COUNT)
        got = bytes(seen)
        seen.release()  # the mapping goes with the backend
        assert got == (a + b).tobytes()
        assert backend.instrument is not None and backend.instrument.findings() == []


@pytest.mark.parametrize("tier", OPENERS)
def test_discarded_buffer_read_is_reported_until_the_buffer_is_filled(tier: str) -> None:
    builder = Builder("sum")
    for name, role in (("step.a", "step"), ("step.b", "step"), ("out.y", "output")):
        builder.buffer(name, (1, COUNT), "f32", role)  # type: ignore[arg-type]
    builder.node(Op.ADD, ("step.a", "step.b"), ("out.y",), label="sum")
    graph = builder.build()
    plan = plan_memory(
        graph, capacity={}, heaps={**ROLE_HEAPS, "step": BufferHeap.DEVICE_LOCAL, "output": BufferHeap.BAR}
    )
    driver = SimDriver(sanitizer="fast")
    opener, stream = OPENERS[tier], Stream("main")
    with opener(driver, AmdOptions("canonical-1", find_kernel_set("gfx1201")), after=driver.close_all) as backend:
        buffers = {n: backend.alloc(a.size_bytes, a.heap, n) for n, a in plan.allocations.items()}
        variant = backend.build(
            lower(graph, backend.kernels.entries, plan, ordering="canonical-1", tier=tier), buffers
        )
        location, out = plan.placements["step.a"], plan.placements["out.y"]
        for name in ("step.a", "step.b"):
            to = plan.placements[name]
            ones = memoryview(np.ones(COUNT, np.float32)).cast("B")
            backend.write(buffers[to.allocation], to.offset_bytes, ones)
        backend.submit(variant, stream).wait(60.0)
        assert backend.instrument is not None and backend.instrument.findings() == []

        backend.instrument.discard(buffers[location.allocation], location.offset_bytes, 4 * COUNT)
        backend.submit(variant, stream).wait(60.0)
        findings = backend.instrument.findings()
        assert findings and {finding.rule for finding in findings} == {"uninitialised-memory"}
        assert findings[0].kernel == "add" and findings[0].source and findings[0].source in findings[0].text
        assert findings[0].node is not None and findings[0].node.label == "sum"

        backend.fill(buffers[location.allocation], location.offset_bytes, 4 * COUNT, stream)
        backend.submit(variant, stream).wait(60.0)
        assert backend.instrument.findings() == findings
        seen = backend.read(buffers[out.allocation], out.offset_bytes, 4 * COUNT).tobytes()
        assert seen == np.ones(COUNT, np.float32).tobytes()
