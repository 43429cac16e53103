"""Planted in the simulated T1: bisect names the node, its kernel, and the lane that stored the wrong value."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from planted import PlantedFault, flip_bit, shift_table
from replay_runs import record_run

from zinc_rt.backends.amd import executable_builder
from zinc_rt.backends.base import Backend
from zinc_rt.engine.devices import ORACLE, choose_tier, open_backend
from zinc_rt.isa import decode_stream, target_of
from zinc_rt.kernels import sets
from zinc_rt.kernels.sets import KernelSet, find_kernel_set
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.lower import Call, LoweredGraph
from zinc_rt.replay.bisect import bisect
from zinc_rt.replay.lane_trace import trace_lane
from zinc_rt.replay.one_node_log import emit_repro
from zinc_rt.replay.run import replay
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import read_tape

pytestmark = pytest.mark.skipif(find_kernel_set("gfx1201") is None, reason="no gfx1201 kernels in this build")


@pytest.mark.rest
def test_wrong_instruction_is_traced_to_the_storing_lane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = record_run(tmp_path / "a.zlog", "qwen3-q", steps=0)
    simulated = choose_tier("t1", "sim", sanitizer="fast")
    with monkeypatch.context() as planted:
        planted.setattr(sets, "find_kernel_set", plant_wrong_swiglu)
        result = bisect(log, simulated, until=0)
        assert result.where is not None and result.where.label == "ffn_swiglu-0", result.lines
        stored = result.where.stored
        assert stored["kernel"] == "swiglu" and "store" in stored["instruction"]
        assert 0 <= stored["lane"] < 32 and stored["stores"] == 1
        assert result.replays <= result.allowed
        emitted = emit_repro(log, result, tmp_path / "repro", simulated)
        assert not replay(emitted.log, simulated).equal
        lane = trace_lane(emitted.log, stored)
        assert any("v_mul_i32_i24" in line for line in lane), "the planted instruction"
        assert [line for line in lane if line.strip() == f"{stored['pc']:x}  {stored['instruction']}"]
    assert replay(emitted.log, ORACLE).equal


@pytest.mark.rest
def test_hanging_node_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = record_run(tmp_path / "a.zlog", "qwen3-q", steps=0)
    simulated = choose_tier("t1", "sim", sanitizer="fast")
    monkeypatch.chdir(tmp_path)  # where the hang reports go
    monkeypatch.setattr(sets, "find_kernel_set", plant_illegal_swiglu)
    result = bisect(log, simulated, until=0)
    assert result.where is not None and result.where.label == "ffn_swiglu-0", result.lines
    assert "stopped for good" in result.where.finding and result.replays <= result.allowed
    emitted = emit_repro(log, result, tmp_path / "repro", simulated)
    with LogReader(emitted.log) as reader:
        (node,) = read_tape(reader).graphs[0].graph.nodes
    assert node.label == "ffn_swiglu-0"


@pytest.mark.rest
def test_page_fault_names_node_kernel_instruction_and_wave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = record_run(tmp_path / "a.zlog", "qwen3-q", steps=0)
    simulated = choose_tier("t1", "sim", sanitizer="fast")
    monkeypatch.chdir(tmp_path)  # where the hang reports go
    monkeypatch.setattr(sets, "find_kernel_set", plant_stray_swiglu)
    result = bisect(log, simulated, until=0)
    assert result.where is not None and result.where.label == "ffn_swiglu-0", result.lines
    fault = result.where.fault
    assert fault["kernel"] == "swiglu" and fault["access"] == "store" and fault["why"] == "not present"
    assert "global_store" in fault["instruction"] and "swiglu.s:" in fault["source"]
    assert fault["group"] == (0, 0, 0) and fault["wave"] == 0 and fault["lanes"] & 1
    assert fault["node"].endswith("ffn_swiglu-0") and fault["dispatch"] is not None
    assert len(fault["kernel_sha256"]) == 64
    assert any("sha256 " + fault["kernel_sha256"][:12] in line for line in result.lines)
    assert "GPU page fault" in result.where.finding and "swiglu.s:" in result.where.finding
    assert result.replays <= result.allowed


def plant_stray_swiglu(arch: str) -> KernelSet | None:
    """Replace the result's address by the sum of two operands' addresses."""
    real = find_kernel_set(arch)
    assert real is not None

    def load_changed(name: str) -> Zrt:
        zrt = real.load(name)
        if name != "swiglu":
            return zrt
        code = bytearray(zrt.code)
        (added,) = (
            item.at
            for item in decode_stream(zrt.code, target_of(arch))
            if item.instruction is not None and item.instruction.text == "s_add_nc_u64 s[8:9], s[8:9], s[14:15]"
        )
        code[added + 1] = 6  # s[6:7] in place of s[14:15]
        return replace(zrt, code=bytes(code))

    return replace(real, load=load_changed)


def plant_illegal_swiglu(arch: str) -> KernelSet | None:
    real = find_kernel_set(arch)
    assert real is not None

    def load_changed(name: str) -> Zrt:
        zrt = real.load(name)
        return replace(zrt, code=b"\xff" * 4 + zrt.code[4:]) if name == "swiglu" else zrt

    return replace(real, load=load_changed)


def plant_wrong_swiglu(arch: str) -> KernelSet | None:
    """Flip one bit of the first multiplication: v_mul_f32 becomes v_mul_i32_i24."""
    real = find_kernel_set(arch)
    assert real is not None

    def load_changed(name: str) -> Zrt:
        zrt = real.load(name)
        if name != "swiglu":
            return zrt
        first = next(
            item
            for item in decode_stream(zrt.code, target_of(arch))
            if item.instruction is not None and item.instruction.text.startswith("v_mul_f32_e32")
        )
        code = bytearray(zrt.code)
        code[first.at + 3] ^= 1 << 1
        return replace(zrt, code=bytes(code))

    return replace(real, load=load_changed)


@pytest.mark.rest
def test_dropped_barrier_finding_names_the_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        executable_builder, "verify", lambda *argument: None
    )  # it refuses the program before it runs
    log = record_run(tmp_path / "a.zlog", "qwen3-q", steps=0)
    result = bisect(log, partial(drop_barrier, node="ffn_norm-1"), until=0)
    assert result.where is not None and result.where.label == "ffn_norm-1", result.lines
    assert "missing-barrier" in result.where.finding
    assert result.replays <= result.allowed


def drop_barrier(ordering: str, node: str) -> Backend:
    """T1 that does not wait before one node."""
    backend: Any = open_backend(choose_tier("t1", "sim", sanitizer="fast"), ordering)
    build = backend.build

    def build_without_barrier(program: LoweredGraph, buffers: Any) -> Any:
        after = [*program.steps[1:], None]
        kept = tuple(
            step
            for step, following in zip(program.steps, after, strict=True)
            if isinstance(step, Call) or not (isinstance(following, Call) and following.node.label == node)
        )
        return build(replace(program, steps=kept), buffers)

    backend.build = build_without_barrier
    return backend  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.parametrize(
    ("model", "plant", "node", "kernel"),
    [
        ("qwen3-q", flip_bit("model.attn.v_weight[1]", 40, 1), "Vcur-1", "matvec"),
        ("qwen3-q", shift_table("constant.rope.cos", "constant.rope.sin"), "Qcur-0", "rope"),
        ("qwen35moe-q", flip_bit("model.ssm.beta_weight[1]", 70, 3), "beta-1", "matvec"),
    ],
    ids=["weight", "rope-table", "state-space-weight"],
)
def test_memory_corruption_is_traced_to_its_reader(
    tier: str, model: str, plant: PlantedFault, node: str, kernel: str, tmp_path: Path
) -> None:
    log = record_run(tmp_path / "a.zlog", model, steps=1)
    planted = partial(change_upload, tier=tier, plant=plant)
    result = bisect(log, planted)
    assert result.where is not None and result.where.label == node, result.lines
    assert result.where.stored["kernel"].startswith(kernel), result.where.stored
    assert any("on the device is not what was uploaded, first at byte" in line for line in result.lines)
    assert result.replays <= result.allowed
    emitted = emit_repro(log, result, tmp_path / "repro", planted)
    assert replay(emitted.log, planted).differences and replay(emitted.log, ORACLE).equal


def change_upload(ordering: str, tier: str, plant: PlantedFault) -> Backend:
    """A tier whose weights or tables differ from the file."""
    backend: Any = open_backend(choose_tier(tier, "sim", sanitizer="fast"), ordering)
    upload = backend.upload

    def upload_changed(weights: Any, constants: Any) -> Any:
        tables = {name: Weight("f32", table.shape, table) for name, table in constants.items()}
        resident = plant.resident({**weights, **tables})
        return upload(
            {name: item for name, item in resident.items() if name in weights},
            {name: item.raw for name, item in resident.items() if name in constants},
        )

    backend.upload = upload_changed
    return backend  # type: ignore[no-any-return]
