"""zinc-rt-trace around other commands, what it shows of a log, and what is on disk when a run ends badly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend, CpuExecutable
from zinc_rt.engine.devices import ORACLE
from zinc_rt.engine.engine import Engine
from zinc_rt.exec import DeadlineMissed
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.model.gguf import read_gguf
from zinc_rt.replay import command as replay_command
from zinc_rt.replay.run import replay
from zinc_rt.trace.command import main
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.recorder import Recorder, record
from zinc_rt.trace.tape import read_tape

MODEL = str(FOLDER / "qwen3-q.gguf")
RUN = ["run", "--model", MODEL, "--tokens", "1,2,3", "--max-tokens", "4", "--tier", "t_cpu", "--ignore-eos"]


def test_wrapped_run_is_recorded_and_its_exit_code_is_forwarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.zlog"
    assert main(["-o", str(path), "--", *RUN]) == 0
    assert "zinc-rt-replay" in capsys.readouterr().err
    with LogReader(path) as log:
        assert log.header["argv"] == RUN and len(read_tape(log).steps) == 4
    assert replay(path, ORACLE).equal
    assert main(["-o", str(path), "--", "run", "--model", str(tmp_path / "none.gguf"), "--tokens", "1"]) == 2


@pytest.mark.rest
def test_run_with_cached_graphs_is_recorded(tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / f"{number}.zlog"
        assert main(["-o", str(path), "--", *RUN[:-3], "--tier", "t1", "--device", "sim"]) == 0
        with LogReader(path) as log:
            assert len(read_tape(log).steps) > 1


def test_every_engine_of_a_validation_has_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "v.zlog"
    wrapped = ["validate", "--model", MODEL, "--tiers", "t_cpu", "--tokens", "1,2", "--steps", "1", "--no-cache"]
    assert main(["-o", str(path), "--", *wrapped]) == 0
    logs = sorted(tmp_path.glob("*.zlog"))
    assert [log.name for log in logs] == ["v.2.zlog", "v.zlog"]
    for log in logs:
        assert replay(log, ORACLE).equal


def test_probe_results_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.zlog"
    probes = ["pm4-test", "--device", "sim", "--tiers", "t1", "-k", "P01", "--journal", str(tmp_path / "journal")]
    assert main(["-o", str(path), "--attach", *probes]) == 0
    assert "results, no engine was opened" in capsys.readouterr().err
    with LogReader(path) as log:
        events = read_tape(log).events
        assert log.header["argv"] == probes
    assert events and all("status" in json.loads(event.detail) for event in events)
    assert replay_command.main([str(path)]) == 2  # nothing that could run again
    assert replay_command.main([str(path), "--info"]) == 0


def test_stats_plan_and_timeline_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.zlog"
    main(["-o", str(path), "--", *RUN])
    capsys.readouterr()
    assert main(["--stats", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "bytes per token" in shown and "qwen3-decode-greedy 1,1,1: 3 steps" in shown
    assert main(["--plan", str(path)]) == 0
    assert "request[slot].token_id" in capsys.readouterr().out
    assert main(["--plan-json", str(tmp_path / "plans.json"), str(path)]) == 0
    assert "the memory plans of 2 variants" in capsys.readouterr().out
    written = json.loads((tmp_path / "plans.json").read_text())
    assert written["schema"] == "zinc-rt-plans/1"
    plans = [MemoryPlan.from_dict(plan) for plan in written["plans"]]
    assert [plan.capacity["tokens"] for plan in plans] == [16, 1]
    assert all("request[slot].token_id" in plan.placements and plan.total_bytes > 0 for plan in plans)
    assert main(["--chrome", str(tmp_path / "t.json"), str(path)]) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["name"].startswith("qwen3")]
    assert len(slices) == 4 and all(event["dur"] > 0 for event in slices)
    assert [event["args"]["step"] for event in slices] == [0, 1, 2, 3]
    assert {"host gap", "wait"} <= {event["name"] for event in events}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-o", "x.zlog"],
        ["-o", "x.zlog", "--"],
        ["-o", "x.zlog", "--", "nosuch"],
        ["--stats"],
        ["--stats", "x.zlog", "--", "run"],
        ["--stats", "missing.zlog"],
        ["-o", "no/such/folder/x.zlog", "--", *RUN],
    ],
    ids=" ".join,
)
def test_invalid_arguments_are_reported(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err


def test_info_json_and_diff_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, third = (str(tmp_path / name) for name in ("a.zlog", "b.zlog", "c.zlog"))
    main(["-o", one, "--", *RUN])
    main(["-o", other, "--level", "full", "--", *RUN])
    main(["-o", third, "--level", "digest", "--", *RUN[:4], "1,2,4", *RUN[5:]])
    capsys.readouterr()
    assert replay_command.main([one, "--info"]) == 0
    assert "steps     4, 4 ended, 6 tokens" in capsys.readouterr().out
    assert replay_command.main([one, "--to-json"]) == 0
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds[0] == "Header" and kinds.count("Replayed") == 4
    assert replay_command.main([one, "--diff", other]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS")
    assert replay_command.main([one, "--diff", third]) == 1
    assert "the host wrote different bytes to request[slot].token_id" in capsys.readouterr().out


def test_report_lists_the_comparisons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.zlog"
    main(["-o", str(path), "--", *RUN])
    assert replay_command.main([str(path), "--tiers", "t_cpu", "--json", str(tmp_path / "r.json")]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["results"][0]["measure"]["outputs"] == 20 and report["verdict"]["status"] == "PASS"
    assert replay_command.main([str(path), "--bisect"]) == 1, "there was no failure to find"
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAIL      t_cpu: not reproduced: every step has")


def test_full_disk_fails_a_recorded_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "/dev/full", "--", *RUN]) == 1
    errors = capsys.readouterr().err
    last = errors.splitlines()[-1]
    assert last == "trace     /dev/full: 0 of 4 steps, the rest was lost: No space left on device, 0 B"
    assert errors.count("No space left on device") == 2 and "zinc-rt-replay" not in errors


def test_disk_filling_up_is_reported_with_recorded_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.zlog"
    assert main(["-o", str(path), "--", *RUN]) == 0
    room, whole = path.stat().st_size - 1000, os.write

    def write_until_full(fd: int, data: bytes) -> int:
        if path.stat().st_size + len(data) > room:
            raise OSError(28, "No space left on device")
        return whole(fd, data)

    monkeypatch.setattr(os, "write", write_until_full)
    assert main(["-o", str(path), "--", *RUN]) == 1
    monkeypatch.undo()
    with LogReader(path) as log:
        steps = len(read_tape(log).steps)
    assert f"{path}: {steps} of 4 steps, the rest was lost: No space" in capsys.readouterr().err.splitlines()[-1]


def test_removed_log_folder_is_reported_with_lost_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    retired = Recorder.retired

    def remove_logs(self: Recorder, *arguments: Any) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        retired(self, *arguments)

    monkeypatch.setattr(Recorder, "retired", remove_logs)
    assert main(["-o", str(folder / "run.zlog"), "--", *RUN]) == 1
    assert "0 of 4 steps, the rest was lost: its file was removed" in capsys.readouterr().err.splitlines()[-1]


def test_full_disk_fails_recorded_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes = ["pm4-test", "--device", "sim", "--tiers", "t1", "-k", "P01", "--journal", str(tmp_path / "journal")]
    assert main(["-o", "/dev/full", "--", *probes]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "trace     /dev/full: 0 results, not all: No space left on device"


def test_exit_code_of_the_command_takes_precedence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "/dev/full", "--", *RUN[:4], "1,2,99999999", *RUN[5:]]) == 2


class FailingRunner(CpuBackend):
    """Its third replay ends badly."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("canonical-1")
        self._left = 2
        self._error = error

    def _run(self, variant: CpuExecutable) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._error
        super()._run(variant)


class HungQueue(DeadlineMissed):
    bundle = Path("zinc-rt-hangs/one")


@pytest.mark.parametrize("error", [HungQueue("no fence"), RuntimeError("a bug"), KeyboardInterrupt()], ids=repr)
def test_failed_run_keeps_its_log_and_prints_the_replay_command(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "bad.zlog"
    output: list[str] = []
    with (
        pytest.raises(type(error)),
        Engine(read_gguf(MODEL), FailingRunner(error), ctx=32) as engine,
        record(engine, path, warn=output.append),
    ):
        sequence = engine.open()
        for token in range(5):
            engine.extend(sequence, [token])
    assert output == [f"recorded up to step 2; replay it with: zinc-rt-replay {path} --until 2"]
    with LogReader(path) as log:
        tape = read_tape(log)
        assert log.closed
    assert [step.seconds is None for step in tape.steps] == [False, False, True]
    (fault,) = tape.faults
    assert fault.step == 2 and fault.bundle == ("zinc-rt-hangs/one" if isinstance(error, HungQueue) else "")
    outcome = replay(path, ORACLE, until=2)
    assert outcome.equal and outcome.steps == 3  # the third has nothing to be compared with


@pytest.mark.rest
def test_killed_run_replays_up_to_the_kill(tmp_path: Path) -> None:
    path = tmp_path / "killed.zlog"
    code = "import sys; from zinc_rt.trace.command import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["-o", str(path), "--", *RUN, "--max-tokens", "100000", "--ctx", "256"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.stat().st_size > 140_000:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    outcome = replay(path, ORACLE)
    assert outcome.equal and outcome.steps > 0 and any("not closed" in problem for problem in outcome.problems)
