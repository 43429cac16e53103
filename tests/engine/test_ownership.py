"""Memory on a simulated T1 and T2: what is dropped goes back to the last byte, and nobody reads what it held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.resident import Resident, Variant
from zinc_rt.exec import Buffer, Graph, InFlight, Stream, copy
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.lower import LoweredGraph, lower
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import ARENA
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.pm4.packets import WaitRegMem64
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.memory.vm import GpuVm

OPENERS: dict[str, Callable[..., AmdBackend]] = {"t1": open_t1, "t2": open_t2}
WIDTH = 64
PATIENCE = 60.0
MAIN = Stream("main")


@dataclass
class OpenedDevice:
    backend: AmdBackend
    driver: SimDriver

    @property
    def vm_handles(self) -> list[GpuVm]:
        return [file.vm for file in self.driver.process.files.values() if isinstance(file, DrmFile)]

    def held_memory(self) -> dict[str, Any]:
        """Return all memory that the backend, its transport and the simulated device have allocated."""
        memory, vms = self.backend.memory, self.vm_handles
        return {
            "blocks": sorted(block.device.size_bytes for block in memory._blocks),
            "addresses": sorted((region.size_bytes, region.name) for region in memory.addresses),
            "transport": self.backend.side.transport.resources(),
            "mapped by the host": len(self.driver.live_mappings),
            "spans": sorted(span.size_bytes for vm in vms for span in vm.spans),
            "announced": sorted((item.size_bytes, item.name) for vm in vms for item in vm.announced),
        }

    def found(self) -> list[Any]:
        assert self.backend.instrument is not None
        return self.backend.instrument.findings()


@contextmanager
def open_simulated(tier: str) -> Iterator[OpenedDevice]:
    driver = SimDriver(sanitizer="fast")
    kernels = find_kernel_set("gfx1201")
    with OPENERS[tier](driver, AmdOptions("canonical-1", kernels), after=driver.close_all) as backend:
        yield OpenedDevice(backend, driver)


@pytest.fixture(params=OPENERS)
def device(request: pytest.FixtureRequest) -> Iterator[OpenedDevice]:
    with open_simulated(request.param) as one:
        yield one


def sum_graph(*, nodes: int = 2) -> ir.OpGraph:
    """out = a + b, and with two nodes out = t + t of t = a + b, an activation."""
    builder = Builder("sum")
    builder.buffer("step.counts", (4,), "i32", "step")
    for name in ("step.a", "step.b"):
        builder.buffer(name, ("tokens", WIDTH), "f32", "step")
    builder.buffer("out.y", ("tokens", WIDTH), "f32", "output")
    if nodes == 1:
        builder.node(Op.ADD, ("step.a", "step.b"), ("out.y",), label="sum")
    else:
        builder.buffer("act.t", ("tokens", WIDTH), "f32", "activation")
        builder.node(Op.ADD, ("step.a", "step.b"), ("act.t",), label="sum")
        builder.node(Op.ADD, ("act.t", "act.t"), ("out.y",), label="twice")
    return builder.build()


class SumEngine:
    """Variants of one graph that share a resident's memory."""

    def __init__(self, opened: OpenedDevice, *, nodes: int = 2, max_variants: int = 0) -> None:
        self.ir = sum_graph(nodes=nodes)
        self.resident = Resident(opened.backend, {}, {}, share_arenas=True)
        self.replays: Graph = self.resident.graph("sum", self.ir, max_variants=max_variants)

    def build(self, tokens: int) -> Variant:
        return self.resident.build(self.ir, (tokens, 1, 1), self.replays)

    def run(self, variant: Variant, tokens: int, *, hand_over: bool = True) -> bytes:
        """`hand_over`: as the runtime does it; else the device is not told that others ran in the arena."""
        for name in ("step.a", "step.b"):
            variant.write(name, np.ones((min(tokens, variant.key[0]), WIDTH), np.float32))
        variant.write("step.counts", np.array([tokens, 1, 1, 0], np.int32))
        fence = variant.submit(MAIN) if hand_over else variant.replays.replay(variant.key, MAIN)
        fence.wait(PATIENCE)
        return variant.read("out.y", (min(tokens, variant.key[0]), 1, 1, 0)).tobytes()


# --- given back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "rounds"), [("t1", 999), ("t2", 99)])
@pytest.mark.rest
def test_evictions_release_memory_and_names(tier: str, rounds: int) -> None:
    with open_simulated(tier) as device:
        sums = SumEngine(device, nodes=1, max_variants=2)
        keys = (2, 3, 4)
        for tokens in keys:  # the kernel, the staging and the queues are there from here on
            sums.run(sums.build(tokens), tokens)
        before = device.held_memory()
        for number in range(rounds):
            variant = sums.build(keys[number % 3])
            if number % 33 == 0:
                assert sums.run(variant, 1) == np.full(WIDTH, 2, np.float32).tobytes()
        assert device.held_memory() == before
        assert [key[0] for key in sums.replays.keys] == [3, 4] and len(device.backend._builder.built) == 2
        sums.resident.unload()
        assert not device.backend._builder.built and not any(
            "sum" in name for _, name in device.held_memory()["announced"]
        )
        assert device.found() == []


@pytest.fixture(scope="module")
def hybrid_model(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    path = tmp_path_factory.mktemp("ownership") / "qwen35.gguf"
    write_tiny(path, "qwen35", hidden=32, vocab=320)
    return read_gguf(path)


@pytest.mark.rest
def test_repeated_load_and_unload_does_not_leak(hybrid_model: GGUFFile) -> None:
    with open_simulated("t1") as device, Engine(hybrid_model, device.backend, ctx=32) as engine:
        want = engine.forward([3, 1]).tobytes()
        engine.unload()
        before = device.held_memory()
        assert not any(name.startswith("kernel") for _, name in before["announced"])
        assert before["blocks"] and len(before["blocks"]) <= 2  # staging and fences stay with the backend
        for _ in range(19):
            assert engine.forward([3, 1]).tobytes() == want
            engine.unload()
            assert device.held_memory() == before
        assert device.found() == []


def test_unloading_during_replay_is_rejected(device: OpenedDevice) -> None:
    sums, backend = SumEngine(device), device.backend
    variant = sums.build(16)
    sums.run(variant, 1)
    gate = backend.alloc(8, BufferHeap.HOST_VISIBLE, "gate")
    assert gate.gpu_va is not None
    backend.ring(MAIN).run((WaitRegMem64(gate.gpu_va, 1),), "a closed gate")
    fence = variant.submit(MAIN)
    with pytest.raises(InFlight) as refused:
        sums.resident.unload()
    assert str(refused.value).splitlines()[0] == "cannot unload: a replay of sum is in flight"
    backend.write(gate, 0, memoryview(np.ones(1, np.uint64)).cast("B"))
    fence.wait(PATIENCE)
    sums.resident.unload()


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("step", ["build", "kernel", "specs", "ib"])
def test_failed_build_releases_everything(
    device: OpenedDevice, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = device.backend
    sums = SumEngine(device, nodes=1)
    sums.run(sums.build(2), 2)
    sums.resident.unload()
    before = device.held_memory()

    def raise_error(*_: object, **__: object) -> Any:
        raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        if step == "build":
            patch.setattr(backend, "build", raise_error)
        elif step == "ib":
            patch.setattr("zinc_rt.backends.amd.executable_builder.build_ib", raise_error)
        else:
            calls, put = iter((step == "kernel", True)), backend._open_transfer().write
            patch.setattr(
                backend._open_transfer(),
                "write",
                lambda *argument: raise_error() if next(calls) else put(*argument),
            )
        with pytest.raises(RuntimeError, match="half-way"):
            sums.build(3)
    assert device.held_memory() == before and not backend._builder.built
    sums.run(sums.build(3), 3)
    assert device.found() == []


@pytest.mark.rest
def test_failed_upload_releases_its_memory(hybrid_model: GGUFFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_simulated("t1") as device, Engine(hybrid_model, device.backend, ctx=32) as engine:
        engine.forward([3])
        engine.unload()
        before = device.held_memory()
        calls, write = iter(range(100)), device.backend._open_transfer().write

        def raise_error(*given: Any) -> None:
            if next(calls) == 5:
                raise RuntimeError("half-way")
            write(*given)

        with monkeypatch.context() as patch:
            patch.setattr(device.backend._open_transfer(), "write", raise_error)
            with pytest.raises(RuntimeError, match="half-way"):
                engine.variants.get("decode", (1, 1, 1))
        assert device.held_memory() == before


# --- what the next one finds -------------------------------------------------------------------------------


def without_its_first_node(program: LoweredGraph) -> LoweredGraph:
    """Its activation is read but never written."""
    dropped = program.calls[0]
    return replace(program, steps=tuple(step for step in program.steps if step is not dropped))


def drop_first_node(sums: SumEngine, tokens: int, monkeypatch: pytest.MonkeyPatch) -> Variant:
    def lower_without_first_node(*given: Any, **named: Any) -> LoweredGraph:
        return without_its_first_node(lower(*given, **named))

    with monkeypatch.context() as patch:
        patch.setattr("zinc_rt.engine.resident.lower", lower_without_first_node)
        return sums.build(tokens)


def test_data_of_previous_variant_is_uninitialised_after_handover(
    device: OpenedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = SumEngine(device)
    good, bad = sums.build(16), drop_first_node(sums, 4, monkeypatch)
    assert good.arena is bad.arena is not None
    want = np.full(4 * WIDTH, 4, np.float32).tobytes()
    sums.run(good, 4)
    assert sums.run(bad, 4, hand_over=False) == want  # right, by what good left there
    assert device.found() == []
    sums.run(good, 4)
    assert sums.run(bad, 4) == want
    result = device.found()
    assert result and {item.rule for item in result} == {"uninitialised-memory"}
    assert result[0].node is not None and result[0].node.label == "twice"
    assert "act.t" in result[0].sentence


def test_reused_memory_is_uninitialised(device: OpenedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = SumEngine(device)
    good = sums.build(4)
    sums.run(good, 4)
    sums.resident.unload()
    bad = drop_first_node(sums, 4, monkeypatch)  # mostly at the same address, which the system need not give again
    sums.run(bad, 4)
    assert {item.rule for item in device.found()} == {"uninitialised-memory"}


def test_bounds_follow_the_new_executable_after_handover(device: OpenedDevice) -> None:
    sums = SumEngine(device)
    large, small = sums.build(64), sums.build(2)
    arena = small.buffers[ARENA]
    sums.run(large, 64)
    assert device.found() == []
    small.write("step.counts", np.array([8, 1, 1, 0], np.int32))  # more rows than it was built for
    small.submit(MAIN).wait(PATIENCE)
    assert arena.gpu_va is not None
    end = arena.gpu_va + small.program.plan.placements["act.t"].size_bytes
    beyond = [
        item
        for item in device.found()
        if item.address is not None and end <= item.address < arena.gpu_va + arena.size_bytes
    ]
    assert beyond and {item.rule for item in beyond} == {"out-of-bounds"}


def test_building_another_variant_keeps_bounds_and_drops_its_names(device: OpenedDevice) -> None:
    sums = SumEngine(device)
    small = sums.build(2)
    large = sums.build(64)
    shared = large.arena
    assert shared is not small.arena and shared is not None  # too large for the first one's
    sums.run(large, 64)
    also = sums.build(32)
    assert also.arena is shared
    sums.run(large, 64, hand_over=False)  # as one that was in flight meanwhile
    sums.run(large, 64)
    sums.resident.drop(also)
    sums.run(large, 64)
    third = sums.build(16)
    assert third.arena is shared
    sums.run(third, 16)
    start = shared.buffer.gpu_va
    assert start is not None
    names = [
        (item.name, item.size_bytes)
        for vm in device.vm_handles
        for item in vm.announced
        if start <= item.va < start + shared.buffer.size_bytes
    ]
    assert names == [("act.t", third.program.plan.placements["act.t"].size_bytes)]
    assert device.found() == []


@pytest.mark.parametrize("tier", OPENERS)
@pytest.mark.rest
def test_state_and_page_table_are_zeroed_after_unload(tier: str, hybrid_model: GGUFFile) -> None:
    with open_simulated(tier) as device, Engine(hybrid_model, device.backend, ctx=32) as engine:
        backend = device.backend

        def read_state() -> dict[str, bytes]:
            variant = engine.variants.get("decode", (1, 1, 1))
            result = {}
            for spec in variant.graph.by_role("state", "table"):
                placement = variant.program.plan.placements[spec.name]
                if spec.name.startswith("state.kv_"):
                    continue  # nobody reads a row that was not written
                out = backend.alloc(placement.size_bytes, BufferHeap.BAR, "seen")
                source: Buffer = variant.buffers[placement.allocation]
                copy(backend, source, placement.offset_bytes, out, 0, placement.size_bytes, engine.runner.stream)
                assert engine.runner.stream.last is not None
                engine.runner.stream.last.wait(PATIENCE)
                result[spec.name] = backend.read(out, 0, placement.size_bytes).tobytes()
                backend.free(out)
            return result

        filler = engine.open()
        engine.extend(filler, [3, 1, 4, 1] * 5)  # into its second page, whose number is not 0
        used = read_state()
        assert any(used["state.page_table"])
        assert any(any(content) for name, content in used.items() if name.startswith("state.ssm_"))
        engine.release(filler)
        engine.unload()
        fresh = read_state()
        assert fresh.keys() == used.keys() and not any(any(content) for content in fresh.values())
        assert device.found() == []
