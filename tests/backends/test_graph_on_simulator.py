"""A lowered graph on the simulated T1: what the device hears of it before it runs, and that it runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from zinc_rt.backends.amd.open import open_t1
from zinc_rt.exec import Stream
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import kernel_set
from zinc_rt.kmd.driver import Expected
from zinc_rt.lower import lower
from zinc_rt.mem.heaps import ROLE_HEAPS, Heap
from zinc_rt.mem.plan import plan_memory
from zinc_rt.sim.driver import SimDriver

COUNT = 300


def test_an_addition_is_announced_expected_and_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder("sum")
    for name, role in (("step.a", "step"), ("step.b", "step"), ("out.y", "output")):
        builder.buffer(name, (1, COUNT), "f32", role)  # type: ignore[arg-type]
    builder.node(Op.ADD, ("step.a", "step.b"), ("out.y",), label="sum")
    graph = builder.build()
    plan = plan_memory(graph, capacity={}, heaps={**ROLE_HEAPS, "output": Heap.BAR})
    driver = SimDriver()
    expected: list[Expected] = []
    announced: list[str] = []
    announce = driver.announce

    def listen(va: int, size_bytes: int, name: str) -> None:
        announced.append(name)
        announce(va, size_bytes, name)

    def hear(kernels: Sequence[Expected]) -> None:
        expected.extend(kernels)

    monkeypatch.setattr(driver, "announce", listen)
    monkeypatch.setattr(driver, "expect", hear)
    with open_t1(driver, ordering="canonical-1", kernels=kernel_set("gfx1201"), after=driver.close_all) as backend:
        program = lower(graph, backend.kernels.entries, plan, ordering="canonical-1", tier="t1")
        buffers = {n: backend.alloc(a.size_bytes, a.heap, n) for n, a in plan.allocations.items()}
        variant = backend.build(program, buffers)
        assert [each.threads for each in expected] == [(32, 1, 1)]
        assert {"step.a", "step.b", "out.y", "kernel add", "arguments of add for sum"} <= set(announced)
        a, b = np.random.default_rng(1).standard_normal((2, COUNT), np.float32)
        for name, value in (("step.a", a), ("step.b", b)):
            place = plan.placements[name]
            backend.write(buffers[place.allocation], place.offset_bytes, memoryview(value).cast("B"))
        backend.submit(variant, Stream("main")).wait(60.0)
        place = plan.placements["out.y"]
        seen = backend.read(buffers[place.allocation], place.offset_bytes, 4 * COUNT)
        got = bytes(seen)
        seen.release()  # the mapping goes with the backend
        assert got == (a + b).tobytes()
        assert backend.instrument is not None and backend.instrument.findings() == []
