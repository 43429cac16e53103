"""Ceilings: what bounds a dispatch, worked out by hand for made-up ones; a real model's bytes are all there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.devices import DeviceRow
from zinc_rt.isa.in_flight import PendingLoads
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.command import main
from zinc_rt.perf.predict.ceilings import Ceiling, by_time_lost, ceiling_of
from zinc_rt.perf.predict.devices import CASES, table
from zinc_rt.perf.predict.dispatch_work import DispatchWork
from zinc_rt.perf.predict.token_work import TokenWork, work_of

MODEL = FOLDER / "qwen35moe-q.gguf"
DEVICE = DeviceRow("made up", "", "gfx1201", 10, 1000, 256, 31.25, 8, 0, 100, "this test")  # 1000 GB/s, 20 SIMDs
ASSUMED = {
    "read_efficiency": 0.5, "issue_share": 0.5, "memory_latency_ns": 1000.0, "cache_latency_ns": 100.0,
    "lds_bytes_a_clock": 128.0, "dispatch_us": 1.0, "barrier_us": 3.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def work() -> TokenWork:
    return work_of(read_gguf(MODEL), ctx=256, position=100)


@pytest.fixture
def one(work: TokenWork) -> DispatchWork:
    """Ten workgroups of a wave that each load 1 MB, 10 kB at a time, two waves a SIMD."""
    like = work.each[2]
    report = replace(like.report, waves=2, in_flight=PendingLoads(4, 10_000), loops=())
    return replace(
        like, grid=(1, 10, 1), waves_a_workgroup=1, behind_barrier=True, read_bytes=10_000_000, written_bytes=0,
        wave_bytes=1e6, issued=0.0, report=report,
    )  # fmt: skip


def ceiling(work: DispatchWork, **changed: float) -> Ceiling:
    return ceiling_of(work, DEVICE, ASSUMED | changed)


@pytest.mark.rest
def test_littles_law_bounds_few_waves(one: DispatchWork) -> None:
    made = ceiling(one)
    assert made.memory == pytest.approx(10e6 / 500e9) and made.ideal == pytest.approx(10e6 / 1000e9)
    assert made.in_flight_bytes == 10 * 10_000 and made.resident_waves == 10
    assert made.running == made.latency == pytest.approx(100 * 1e-6), "a hundred waits of a microsecond"
    assert made.in_flight_bytes / 1e-6 == pytest.approx(one.moved_bytes / made.running), (
        "bytes in flight a latency"
    )
    assert made.limit == "latency" and made.bandwidth_share == pytest.approx(0.1)
    assert ceiling(one, memory_latency_ns=100.0).limit == "memory"


def test_data_shared_by_waves_comes_from_cache(one: DispatchWork) -> None:
    """Of ten waves that load the same MB a load misses with a chance of a tenth, one of four more often."""
    found = ceiling(replace(one, read_bytes=1_000_000))
    to_memory = 1 - 0.9**4
    assert found.latency == pytest.approx(100 * (100e-9 + to_memory * 900e-9))
    assert ceiling(replace(one, read_bytes=0)).latency == pytest.approx(100 * 100e-9)


def test_last_round_with_few_workgroups_is_a_tail(one: DispatchWork) -> None:
    """Forty are there at once. The 41st has the device for itself."""
    whole = ceiling(replace(one, grid=(1, 40, 1), read_bytes=400_000_000))
    assert (whole.rounds, whole.tail, whole.limit) == (1, 0, "memory")
    more = ceiling(replace(one, grid=(1, 41, 1), read_bytes=410_000_000))
    assert more.rounds == 2 and more.resident_waves == 40
    assert more.tail == pytest.approx(100e-6 - 20e-6), "100 µs of waits for 20 µs of memory's"
    assert more.running == pytest.approx(whole.running + 100e-6)


def test_instructions_are_counted_on_simds_with_a_wave(one: DispatchWork) -> None:
    busy = ceiling(replace(one, issued=1e6))
    assert busy.issue == pytest.approx(1e6 / (20e9 * 0.5) / 0.5) and busy.limit == "issue"
    assert ceiling(replace(one, issued=1e6, grid=(1, 20, 1))).issue == pytest.approx(busy.issue / 2)
    assert ceiling(replace(one, issued=1e6, grid=(1, 400, 1))).issue == pytest.approx(busy.issue / 2)


def test_lds_traffic_takes_time(one: DispatchWork, work: TokenWork) -> None:
    loop = next(each.report.streaming for each in work.each if each.report.streaming is not None)
    through = replace(one.report, loops=(replace(loop, load_bytes=100, lds_bytes=6400),))
    made = ceiling(replace(one, report=through))
    assert made.lds == pytest.approx(10e6 * 64 / (10 * 0.5 * 128 * 1e9)) and made.limit == "lds"


def test_empty_dispatch_costs_its_launch(one: DispatchWork) -> None:
    idle = replace(one, read_bytes=0, wave_bytes=0.0)
    assert ceiling(idle).lost == pytest.approx(4e-6) and ceiling(idle).limit == "launch"
    assert ceiling(replace(idle, behind_barrier=False)).lost == pytest.approx(1e-6)


def test_identical_dispatches_are_grouped_by_time_lost(one: DispatchWork) -> None:
    small = replace(one, read_bytes=0, wave_bytes=0.0)
    groups = by_time_lost([ceiling(one), *[ceiling(small)] * 30])
    assert [len(group.each) for group in groups] == [30, 1], "120 µs before 90 µs + 4 µs"
    assert groups[0].lost == pytest.approx(30 * 4e-6)


@pytest.mark.parametrize("tokens", [1, 16])
def test_every_graph_byte_belongs_to_one_dispatch(tokens: int) -> None:
    work = work_of(read_gguf(MODEL), ctx=256, position=100, tokens=tokens)
    assert sum(each.read_bytes for each in work.each) == work.read_bytes > 0
    assert sum(each.written_bytes for each in work.each) == work.written_bytes > 0
    assert len(work.each) == work.dispatches
    assert sum(each.behind_barrier for each in work.each) == work.barriers
    assert {label for each in work.each for label in each.labels} == {node.label for node in work.nodes}


def test_dispatch_takes_at_least_the_time_of_its_bytes(work: TokenWork) -> None:
    for device in table().devices.values():
        likely, best = ([ceiling_of(each, device, table().case(case)) for each in work.each] for case in CASES[1:])
        assert all(a.seconds >= b.seconds > b.ideal >= 0 for a, b in zip(likely, best, strict=True))


def test_prompt_tokens_share_the_weights(work: TokenWork) -> None:
    """And load their rows sixteen times; experts as if every token chose others."""
    prompt = work_of(read_gguf(MODEL), ctx=256, position=115, tokens=16)
    weights = [
        {(row.name, row.dtype): row.read_bytes for row in each.traffic if row.kind == "weight"}
        for each in (work, prompt)
    ]
    whole = {name for name in weights[0] if weights[0][name] == weights[1][name]}
    assert any("q_weight" in name for name, _ in whole) and not any("exps" in name for name, _ in whole)
    plain = [
        work_of(read_gguf(MODEL), ctx=256, position=at, tokens=tokens, plain=True)
        for at, tokens in ((100, 1), (115, 16))
    ]
    issued = [sum(each.issued for each in one.each if each.op == "MATMUL") for one in plain]
    assert issued[1] == pytest.approx(16 * issued[0])


def test_fusing_and_merging_save_dispatches_and_barriers(work: TokenWork) -> None:
    """Of memory's bytes they save none: norms' weights are read by every dispatch that norms."""
    plain = work_of(read_gguf(MODEL), ctx=256, position=100, plain=True)
    assert plain.dispatches > work.dispatches and plain.barriers > work.barriers
    assert plain.moved_bytes == pytest.approx(work.moved_bytes, rel=0.02)


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
    assert [each["id"] for each in results] == ["compare/qwen35moe-q.gguf", "compare/qwen3-q.gguf"]
    for each in results:
        assert each["measure"]["dispatches"]["plain"] > each["measure"]["dispatches"]["as_run"] > 0
        assert each["measure"]["tokens_per_second"]["plain"] < each["measure"]["tokens_per_second"]["as_run"]
    assert "plain -> as run" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", [["--prompt-tokens", "0"], ["--prompt-tokens", "513"], ["--prompt-tokens", "16", "--position", "3"]]
)
def test_prompt_exceeding_one_step_or_context_is_rejected(line: list[str]) -> None:
    assert main(["predict", str(MODEL), *line]) == 2
