"""Times of dispatches in a log: recorded where asked for, on a track of their own, in a format that says so."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.base import Backend
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.devices import ORACLE
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.model.gguf import read_gguf
from zinc_rt.replay.run import replay
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.trace import frame
from zinc_rt.trace.chrome import build_timeline
from zinc_rt.trace.command import main
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import TIMED, TimesRecord

MODEL = FOLDER / "qwen3-q.gguf"
TICK_NS = 1000


@pytest.fixture
def t1_backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A simulated device with a counter that advances at each read."""
    readings = itertools.count(1)
    monkeypatch.setattr(SimGpu, "gpu_counter", lambda self: 100 * next(readings))
    driver = SimDriver(sanitizer="fast")
    backend: Backend = open_t1(
        driver, AmdOptions("canonical-1", find_kernel_set("gfx1201")), after=driver.close_all
    )
    return backend


def run_recorded(backend: Backend, path: Path, *, times: bool) -> int:
    """How many nodes the decode graph has."""
    with Engine(read_gguf(MODEL), backend, ctx=64) as engine, record(engine, path, times=times):
        sequence = engine.open()
        engine.extend(sequence, [1, 2], rows="last")
        engine.extend(sequence, [3], rows="last")
        graph = engine.variants.fuse_graph(engine.graph("decode"))
        return sum(node.op is not Op.BARRIER for node in graph.nodes)


def log_version(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[4:8], "little")


@pytest.mark.rest
def test_simulated_gpu_shows_dispatches_of_each_step_on_a_track(t1_backend: Backend, tmp_path: Path) -> None:
    path = tmp_path / "run.zlog"
    nodes = run_recorded(t1_backend, path, times=True)
    with LogReader(path) as log:
        result = [item for item in log if isinstance(item, TimesRecord)]
        events = build_timeline(log)["traceEvents"]
        assert log.header["times"] is True and log.problems == []
    assert [item.step for item in result] == [0, 1] and all(item.simulated for item in result)
    last = list(result[1].dispatches)
    # of one token no grid is data; a fused node may have several dispatches
    assert list(dict.fromkeys(node for node, *_ in last)) == list(range(nodes)) and len(last) >= nodes
    assert {ended - start for _, _, start, ended in last} == {TICK_NS} and last[0][2] == 0
    assert [node for node, kernel, *_ in result[0].dispatches if kernel == "step_grids"] == [-1]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    (queue,) = (tid for tid, name in tracks.items() if name.startswith("queue of main"))
    assert "simulated" in tracks[queue]
    slices = [event for event in events if event["ph"] == "X" and event["tid"] == queue]
    (projection,) = (e for e in slices if e["name"] == "ffn_inp-0 matmul" and e["args"]["step"] == 1)
    (kernel,) = (e for e in slices if e["args"].get("node") == "ffn_inp-0 matmul" and e["args"]["step"] == 1)
    assert kernel["name"].startswith("matvec") and kernel["ts"] == projection["ts"]
    assert projection["dur"] == pytest.approx(TICK_NS / 1e3)


@pytest.mark.rest
def test_device_clock_is_aligned_to_the_completion_seen_by_the_host(t1_backend: Backend, tmp_path: Path) -> None:
    run_recorded(t1_backend, tmp_path / "run.zlog", times=True)
    with LogReader(tmp_path / "run.zlog") as log:
        events = build_timeline(log)["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and e["name"].startswith("qwen3-")]
    for number, step in enumerate(steps):
        ends = [
            e["ts"] + e["dur"]
            for e in events
            if e["ph"] == "X" and e["tid"] >= 1000 and e["args"]["step"] == number
        ]
        assert max(ends) == pytest.approx(step["ts"] + step["dur"], abs=1.0)


def test_oracle_times_are_within_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.zlog"
    run_recorded(CpuBackend("canonical-1"), path, times=True)
    with LogReader(path) as log:
        events = build_timeline(log)["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and e["name"].startswith("qwen3-")]
    inside = [e for e in events if e["ph"] == "X" and e["tid"] >= 1000]
    assert len(inside) > 200
    for item in inside:
        step = steps[item["args"]["step"]]
        assert step["ts"] <= item["ts"] and item["ts"] + item["dur"] <= step["ts"] + step["dur"] + 1.0


def test_only_logs_with_times_use_the_new_format_and_both_replay(tmp_path: Path) -> None:
    plain, timed = tmp_path / "plain.zlog", tmp_path / "timed.zlog"
    run_recorded(CpuBackend("canonical-1"), plain, times=False)
    run_recorded(CpuBackend("canonical-1"), timed, times=True)
    assert (log_version(plain), log_version(timed)) == (frame.VERSION, frame.TIMES_VERSION) == (2, 3)
    with LogReader(plain) as log:
        assert not any(isinstance(item, TimesRecord) for item in log)
    assert replay(plain, ORACLE).equal and replay(timed, ORACLE).equal


def test_command_records_times_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, chrome = tmp_path / "run.zlog", tmp_path / "t.json"
    wrapped = ["run", "--model", str(MODEL), "--tokens", "1,2", "--max-tokens", "2", "--tier", "t_cpu"]
    assert main(["-o", str(path), "--times", "--level", "digest", "--", *wrapped]) == 0
    assert main(["--chrome", str(chrome), str(path)]) == 0
    assert "Qcur-0 matmul" in chrome.read_text()
    assert main(["--stats", str(path)]) == 0
    assert "Times" in capsys.readouterr().out


def test_truncated_times_or_unknown_kernels_are_rejected() -> None:
    whole = TIMED.pack(0, 0, 0, 10)
    assert list(TimesRecord(0, "c", False, 0.0, ("k",), whole).dispatches) == [(0, "k", 0, 10)]
    for kernels, data in ((("k",), whole[:-1]), ((), whole)):
        with pytest.raises(ValueError, match="times of step 0"):
            list(TimesRecord(0, "c", False, 0.0, kernels, data).dispatches)
