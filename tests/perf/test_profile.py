"""perf profile: rows add up to the step, to the nanosecond; a clock that lies fails; what the command writes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.times import TimedDispatch, Times
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UsageError
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.mem.traffic import list_decode_traffic
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.command import main
from zinc_rt.perf.profile.steps import (
    GROUPS,
    PLAN,
    MeasuredSteps,
    ProfileWorkload,
    TimedStep,
    clock_offset_ns,
    measure,
    profile,
)
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.in_process import SimDriver

MODEL = FOLDER / "qwen3-q.gguf"
TICK_NS = 1000


class CountingClock:
    """A clock that counts its readings."""

    def __init__(self) -> None:
        self._readings = itertools.count()

    def __call__(self) -> int:
        return TICK_NS * next(self._readings)


@pytest.fixture(scope="module")
def on_cpu() -> MeasuredSteps:
    """Replace the clocks of the host and the nodes by a counter."""
    clock = CountingClock()
    with Engine(read_gguf(MODEL), CpuBackend("canonical-1", clock_ns=clock), ctx=64) as engine:
        return measure(engine, ProfileWorkload(steps=3, position=2), clock_ns=clock)


@pytest.mark.parametrize("key", GROUPS)
def test_rows_and_host_time_sum_to_the_step_in_nanoseconds(on_cpu: MeasuredSteps, key: str) -> None:
    result = profile(on_cpu, key)
    assert result.nodes_ns + result.host_ns == result.step_ns > 0
    dispatches = sum(len(step.times.dispatches) for step in on_cpu.steps)
    assert sum(row.calls for row in result.rows) == dispatches
    # two readings a node; the host's own before and after each step
    assert (
        result.nodes_ns == (2 * dispatches - result.steps) * TICK_NS
        and result.host_ns == 2 * result.steps * TICK_NS
    )
    assert result.nodes_share >= 0.95 and result.wrong == ()
    assert [row.nanoseconds for row in result.rows] == sorted((r.nanoseconds for r in result.rows), reverse=True)


def test_profile_has_a_row_per_op_layer_and_node(on_cpu: MeasuredSteps) -> None:
    nodes = [node for node in on_cpu.graph.nodes if node.op is not Op.BARRIER]
    assert {row.name for row in profile(on_cpu, "op").rows} == {node.op.name for node in nodes}
    assert len(profile(on_cpu, "node").rows) == len(nodes)
    layers = {row.name for row in profile(on_cpu, "layer").rows}
    assert {"layer 0", "layer 1", "layer 2", "result_output"} <= layers and "layer 3" not in layers
    with pytest.raises(UsageError, match="--by colour"):
        profile(on_cpu, "colour")


def test_bytes_come_from_the_graph_and_prompts_have_none(on_cpu: MeasuredSteps) -> None:
    wanted = sum(
        row.read_bytes + row.written_bytes for row in list_decode_traffic(on_cpu.graph, position=on_cpu.position)
    )
    for by in GROUPS:
        assert sum(row.bytes or 0 for row in profile(on_cpu, by).rows) == wanted
    with Engine(
        read_gguf(MODEL), CpuBackend("canonical-1", clock_ns=(clock := CountingClock())), ctx=64
    ) as engine:
        prompt = measure(engine, ProfileWorkload(steps=1, prefill=5), clock_ns=clock)
    assert prompt.tokens == 5 and {row.bytes for row in profile(prompt, "op").rows} == {None}


@pytest.mark.rest
def test_simulated_gpu_profile_separates_packets_and_barriers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = itertools.count(1)
    monkeypatch.setattr(SimGpu, "gpu_counter", lambda self: 100 * next(readings))
    driver = SimDriver(sanitizer="fast")
    backend = open_t1(driver, AmdOptions("canonical-1", find_kernel_set("gfx1201")), after=driver.close_all)
    clock = CountingClock()

    def read_host_clock() -> int:  # longer than any span of the device's
        return 1000 * clock()

    with Engine(read_gguf(MODEL), backend, ctx=64) as engine:
        measured = measure(engine, ProfileWorkload(steps=2, prefill=3), clock_ns=read_host_clock)
    result = profile(measured, "op")
    count = len(measured.steps[0].times.dispatches)
    assert measured.steps[0].times.simulated and result.wrong == ()
    assert result.nodes_ns == 2 * (2 * count - 1) * TICK_NS  # each dispatch, and each way to the next
    assert sum(row.launch_ns for row in result.rows) == 2 * (count - 1) * TICK_NS
    assert result.nodes_ns + result.host_ns == result.step_ns
    assert PLAN in {row.name for row in result.rows}  # grids of a prompt are data


def make_step(*pairs: tuple[int, int], start: int = 0, ended: int = 100, host_time: bool = False) -> TimedStep:
    dispatches = tuple(TimedDispatch(None, "k", one, two) for one, two in pairs)
    return TimedStep(start, ended, Times("a clock", False, dispatches, host_time))


def test_implausible_clocks_are_reported(on_cpu: MeasuredSteps) -> None:
    for pairs, message in (
        (((10, 20), (15, 30)), "begins before the previous"),
        (((7, 7), (7, 7)), "does not advance"),
        (((0, 90), (90, 300)), "longer than the whole step"),
    ):
        lying = MeasuredSteps(on_cpu.graph, 1, 3, [make_step(*pairs)])
        assert message in profile(lying, "op").wrong[0]
    with pytest.raises(UsageError, match="no dispatch"):
        profile(MeasuredSteps(on_cpu.graph, 1, 3, [make_step()]), "op")


def test_device_clock_is_aligned_at_the_end_of_the_step() -> None:
    assert clock_offset_ns(make_step((5010, 5020), (5030, 5040), start=1000, ended=1100)) == 1100 - 5040
    assert clock_offset_ns(make_step((1010, 1020), start=1000, ended=1100, host_time=True)) == 0


def test_command_writes_table_report_and_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, chrome = tmp_path / "r.json", tmp_path / "t.json"
    words = [
        "profile",
        "--model",
        str(MODEL),
        "--tier",
        "t_cpu",
        "--steps",
        "2",
        "--top",
        "3",
        "--bandwidth",
        "40",
    ]
    assert main([*words, "--layers", "0:2", "--json", str(report), "--chrome", str(chrome)]) == 0
    shown = capsys.readouterr().out
    assert "nodes     add up to" in shown and "more" in shown and "the host's monotonic clock" in shown
    assert "shortcut  --layers 0:2: 2 of 3 layers" in shown and "40.0 GB/s, as given" in shown
    body = json.loads(report.read_text())
    measure = body["results"][0]["measure"]
    assert body["shortcuts"] == ["--layers 0:2: 2 of 3 layers"] and measure["simulated_clock"] is False
    total = sum(row["seconds"] for row in measure["nodes"]) + measure["host_seconds"]
    assert total == pytest.approx(measure["step_seconds"], rel=1e-9)
    assert sum(row["seconds"] for row in measure["rows"]) == pytest.approx(measure["nodes_seconds"], rel=1e-9)
    assert body["direct_compute_ops"] == len(measure["nodes"])
    events = json.loads(chrome.read_text())["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    queue = next(tid for tid, name in tracks.items() if name.startswith("queue main, by the host's"))
    dispatched = [event for event in events if event["ph"] == "X" and event["tid"] == queue]
    steps = [event for event in events if event["ph"] == "X" and event["tid"] != queue]
    assert {"Qcur-0 matmul", "Qcur-0 rope", "rope"} <= {event["name"] for event in dispatched} and len(steps) == 2
    for event in dispatched:  # each inside its step
        inside = steps[event["args"]["step"]]
        assert inside["ts"] <= event["ts"] and event["ts"] + event["dur"] <= inside["ts"] + inside["dur"] + 1e-3


@pytest.mark.rest
def test_simulated_clock_is_marked_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chrome = tmp_path / "t.json"
    words = ["profile", "--model", str(MODEL), "--tier", "t1", "--device", "sim", "--steps", "1", "--json", "-"]
    assert main([*words, "--chrome", str(chrome)]) == 0
    seen = capsys.readouterr()
    measure = json.loads(seen.out)["results"][0]["measure"]
    assert measure["simulated_clock"] and "simulated" in measure["clock"] and measure["bandwidth_gbs"] == 0
    assert "on t1, simulated" in seen.err and "(SIMULATED clock)" in seen.err and "has no bandwidth" in seen.err
    assert "simulated" in chrome.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "--steps 0: expected 1 or more"),
        (["--position", "999"], "do not fit the context"),
        (["--layers", "1:2"], "a profile must begin at layer 0"),
        (["--layers", "0:9"], "layers 0 to 2"),
        (["--bandwidth", "fast"], "--bandwidth fast"),
        (["--bandwidth", "0"], "--bandwidth 0"),
    ],
)
def test_unsupported_input_is_rejected_with_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[Any]
) -> None:
    assert main(["profile", "--model", str(MODEL), "--tier", "t_cpu", *words]) == 2
    assert message in capsys.readouterr().err
