"""The cost of a dispatch, derived by hand for invented ones; a real model's bytes are complete."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from zinc_rt.cost.dispatch import DispatchCost, DispatchCounts, compute_cost
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.devices import DeviceRow
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.command import main
from zinc_rt.perf.predict.ceilings import Ceiling, compute_ceiling, group_by_time_lost
from zinc_rt.perf.predict.devices import CASES, load_table
from zinc_rt.perf.predict.token_work import TokenWork, compute_work

MODEL = FOLDER / "qwen35moe-q.gguf"
OPS = {"f32": 256, "f16": 1024, "bf16": 1024, "iu8": 2048, "iu4": 4096, "dot": 512}
DEVICE = DeviceRow(  # 1000 GB/s, 20 SIMDs
    "invented", "", "gfx1201", 10, 1000, 256, 31.25, 8, 0, 100, "this test", ops_a_clock=OPS, lds_kib=64
)
ASSUMED = {
    "read_efficiency": 0.5, "issue_share": 0.5, "memory_latency_ns": 1000.0, "cache_latency_ns": 100.0,
    "lds_bytes_a_clock": 128.0, "cache_bytes_a_clock": 1e9, "dispatch_us": 1.0, "barrier_us": 3.0,
}  # fmt: skip

COST = DispatchCost(1, 1, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, running=0.0, dispatch=1e-6, barrier=3e-6, ideal=0.0)


@pytest.fixture(scope="module")
def model_work() -> TokenWork:
    return compute_work(read_gguf(MODEL), ctx=256, position=100)


@pytest.fixture
def one_dispatch() -> DispatchCounts:
    """Ten workgroups of one wave that each load 1 MB, 10 kB at a time, with two waves per SIMD."""
    return DispatchCounts(
        workgroups=10, waves_a_workgroup=1, waves_a_simd=2, read_bytes=10e6, moved_bytes=10e6, load_bytes=10e6,
        in_flight_loads=4, in_flight_bytes=10_000, issued=0.0, behind_barrier=True,
    )  # fmt: skip


def cost_ceiling(counts: DispatchCounts, **changed: float) -> DispatchCost:
    return compute_cost(counts, DEVICE, ASSUMED | changed)


@pytest.mark.rest
def test_littles_law_limits_bandwidth_of_few_waves(one_dispatch: DispatchCounts) -> None:
    result = cost_ceiling(one_dispatch)
    assert result.memory == pytest.approx(10e6 / 500e9) and result.ideal == pytest.approx(10e6 / 1000e9)
    assert result.in_flight_bytes == 10 * 10_000 and result.resident_waves == 10
    assert result.running == result.latency == pytest.approx(100 * 1e-6), "a hundred waits of a microsecond"
    assert result.in_flight_bytes / 1e-6 == pytest.approx(one_dispatch.moved_bytes / result.running), (
        "bytes in flight a latency"
    )
    assert result.limit == "latency" and result.bandwidth_share == pytest.approx(0.1)
    assert cost_ceiling(one_dispatch, memory_latency_ns=100.0).limit == "memory"


def test_data_shared_by_waves_comes_from_cache(one_dispatch: DispatchCounts) -> None:
    """Of ten waves that load the same MB a load misses with a chance of a tenth, one of four more often."""
    result = cost_ceiling(replace(one_dispatch, read_bytes=1e6))
    to_memory = 1 - 0.9**4
    assert result.latency == pytest.approx(100 * (100e-9 + to_memory * 900e-9))
    assert cost_ceiling(replace(one_dispatch, read_bytes=0.0)).latency == pytest.approx(100 * 100e-9)


def test_last_round_with_few_workgroups_is_a_tail(one_dispatch: DispatchCounts) -> None:
    """Forty are there at once. The 41st has the device for itself."""
    whole = cost_ceiling(replace(one_dispatch, workgroups=40, read_bytes=4e8, moved_bytes=4e8, load_bytes=4e7))
    assert (whole.rounds, whole.tail, whole.limit) == (1, 0, "memory")
    more = cost_ceiling(
        replace(one_dispatch, workgroups=41, read_bytes=4.1e8, moved_bytes=4.1e8, load_bytes=4.1e7)
    )
    assert more.rounds == 2 and more.resident_waves == 40
    assert more.tail == pytest.approx(100e-6 - 20e-6), "100 µs of waits for 20 µs of memory's"
    assert more.running == pytest.approx(whole.running + 100e-6)


def test_only_simds_with_a_wave_issue_instructions(one_dispatch: DispatchCounts) -> None:
    busy = cost_ceiling(replace(one_dispatch, issued=1e6))
    assert busy.issue == pytest.approx(1e6 / (20e9 * 0.5) / 0.5) and busy.limit == "issue"
    assert cost_ceiling(replace(one_dispatch, issued=1e6, workgroups=20)).issue == pytest.approx(busy.issue / 2)
    assert cost_ceiling(replace(one_dispatch, issued=1e6, workgroups=400)).issue == pytest.approx(busy.issue / 2)


def test_lds_and_cache_traffic_take_time(one_dispatch: DispatchCounts) -> None:
    result = cost_ceiling(replace(one_dispatch, lds_bytes=640e6))
    assert result.lds == pytest.approx(640e6 / (10 * 0.5 * 128 * 1e9)) and result.limit == "lds"
    result = cost_ceiling(one_dispatch, cache_bytes_a_clock=1.0)
    assert result.cache == pytest.approx(10e6 / (10 * 0.5 * 1e9)) and result.limit == "cache"


def test_operations_take_time_by_type(one_dispatch: DispatchCounts) -> None:
    """Half of the ten compute units at 1 GHz, half of whose rate is used."""
    vector = cost_ceiling(replace(one_dispatch, vector_flops=256e6))
    assert vector.flops == pytest.approx(256e6 / (10 * 0.5 * 256 * 1e9 * 0.5)) and vector.limit == "flops"
    matrix = cost_ceiling(replace(one_dispatch, matrix_ops={"f16": 1024e6, "iu8": 2048e6}))
    assert matrix.matrix == pytest.approx(2 * 1e6 / (10 * 0.5 * 1e9 * 0.5)) and matrix.limit == "matrix"


@pytest.mark.parametrize(
    "name", ["moved_bytes", "load_bytes", "issued", "lds_bytes", "vector_flops", "workgroups"]
)
def test_more_work_never_takes_less_time(one_dispatch: DispatchCounts, name: str) -> None:
    base = replace(one_dispatch, workgroups=100, issued=1e6, lds_bytes=1e6, vector_flops=1e6)
    times = [
        cost_ceiling(replace(base, **{name: getattr(base, name) * factor})).seconds for factor in (1, 2, 8, 64)
    ]
    assert times == sorted(times)


def test_empty_dispatch_costs_its_launch(one_dispatch: DispatchCounts) -> None:
    idle = replace(one_dispatch, read_bytes=0.0, moved_bytes=0.0, load_bytes=0.0)
    assert cost_ceiling(idle).lost == pytest.approx(4e-6) and cost_ceiling(idle).limit == "launch"
    assert cost_ceiling(replace(idle, behind_barrier=False)).lost == pytest.approx(1e-6)


def test_identical_dispatches_are_grouped_by_time_lost(model_work: TokenWork) -> None:
    large, small = model_work.each[2], model_work.each[3]
    costs = [Ceiling(large, replace(COST, running=90e-6)), *[Ceiling(small, COST)] * 30]
    groups = group_by_time_lost(costs)
    assert [len(group.each) for group in groups] == [30, 1], "120 µs before 90 µs + 4 µs"
    assert groups[0].lost == pytest.approx(30 * 4e-6)


@pytest.mark.parametrize("tokens", [1, 16])
def test_every_graph_byte_belongs_to_one_dispatch(tokens: int) -> None:
    work = compute_work(read_gguf(MODEL), ctx=256, position=100, tokens=tokens)
    assert sum(item.read_bytes for item in work.each) == work.read_bytes > 0
    assert sum(item.written_bytes for item in work.each) == work.written_bytes > 0
    assert len(work.each) == work.dispatches
    assert sum(item.behind_barrier for item in work.each) == work.barriers


def test_dispatch_takes_at_least_the_time_of_its_bytes(model_work: TokenWork) -> None:
    for device in load_table().devices.values():
        likely, best = (
            [compute_ceiling(item, device, load_table().case(case)).cost for item in model_work.each]
            for case in CASES[1:]
        )
        assert all(a.seconds >= b.seconds > b.ideal >= 0 for a, b in zip(likely, best, strict=True))


def test_prompt_tokens_share_the_weights(model_work: TokenWork) -> None:
    """And load their rows again for each tile of tokens."""
    prompt = compute_work(read_gguf(MODEL), ctx=256, position=115, tokens=16)
    weights = [
        {(row.name, row.dtype): row.read_bytes for row in item.traffic if row.kind == "weight"}
        for item in (model_work, prompt)
    ]
    names = {name for name in weights[0] if weights[0][name] == weights[1][name]}
    assert any("q_weight" in name for name, _ in names) and not any("exps" in name for name, _ in names)
    issued = [sum(item.issued for item in one.each if "MATMUL" in item.op) for one in (model_work, prompt)]
    assert issued[1] > 4 * issued[0], "instructions are multiplied by tokens, or by tiles of four"


def test_fusing_and_merging_save_dispatches_and_barriers(model_work: TokenWork) -> None:
    """Of memory's bytes they save none: norms' weights are read by every dispatch that norms."""
    plain = compute_work(read_gguf(MODEL), ctx=256, position=100, plain=True)
    assert plain.dispatches > model_work.dispatches and plain.barriers > model_work.barriers
    assert plain.moved_bytes == pytest.approx(model_work.moved_bytes, rel=0.02)


def test_command_prints_losses_and_their_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.json"
    assert main(["predict", str(MODEL), "--dispatches", "3", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "dispatch by dispatch" in text and text.count(" x ") == 3
    (result,) = json.loads(out.read_text())["results"]
    rows = result["measure"]["dispatches"]
    lost = [row["lost_seconds"] for row in rows]
    assert lost == sorted(lost, reverse=True) and lost[-1] >= 0
    details = json.loads(out.read_text())["details"]["work"]
    assert sum(row["count"] for row in rows) == details["dispatches"]
    assert sum(row["count"] * row["read_bytes"] for row in rows) == details["read_bytes"]


def test_several_models_have_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.json"
    assert main(["predict", str(MODEL), str(FOLDER / "qwen3-q.gguf"), "--json", str(out)]) == 0
    results = json.loads(out.read_text())["results"]
    assert [result["id"] for result in results] == ["compare/qwen35moe-q.gguf", "compare/qwen3-q.gguf"]
    for result in results:
        assert result["measure"]["dispatches"]["plain"] > result["measure"]["dispatches"]["as_run"] > 0
        assert result["measure"]["tokens_per_second"]["plain"] < result["measure"]["tokens_per_second"]["as_run"]
    assert "plain -> as run" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", [["--prompt-tokens", "0"], ["--prompt-tokens", "513"], ["--prompt-tokens", "16", "--position", "3"]]
)
def test_prompt_exceeding_one_step_or_context_is_rejected(line: list[str]) -> None:
    assert main(["predict", str(MODEL), *line]) == 2
