"""Every command's --json is the one report: the keys and types of zinc-rt-report/1, and a verdict that adds up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.cli.report import Report
from zinc_rt.doctor.bringup.bisect_env.command import EXAMPLE
from zinc_rt.doctor.bundle.format import write
from zinc_rt.doctor.bundle.make import BundleMaker
from zinc_rt.doctor.bundle.store import BundleStore
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.examples import load_base
from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.version import __version__
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.usage.ledger import RunnerCounts, UsageLedger
from zinc_rt.sched.usage.ledger_store import LedgerStore
from zinc_rt.trace.recorder import record

Capture = pytest.CaptureFixture[str]
REPORT: dict[str, type] = {
    "schema": str,
    "command": str,
    "version": str,
    "started": str,
    "wall_seconds": float,
    "device": dict,
    "model": dict,
    "ordering": str,
    "ctx": int,
    "shortcuts": list,
    "model_execution": str,
    "direct_compute_ops": int,
    "direct_compute_kind": str,
    "details": dict,
    "results": list,
    "verdict": dict,
}
RESULT: dict[str, type] = {
    **dict.fromkeys(("id", "kind", "tier", "reference", "status", "reason", "cause", "advice", "repro"), str),
    **dict.fromkeys(("measure", "limit", "first_bad"), dict),
    "artifacts": list,
}
STATUS = {"pass", "fail", "skip", "flake", "blocked"}
VERDICT = {"PASS": 0, "FAIL": 1, "NOTHING RAN": 77}
NO_REPORT = {
    "sim": "serves until it is stopped: nothing is judged",
    "serve": "serves until it is stopped: nothing is judged",
    "completion": "prints a script for a shell",
    "debug": "prints a record for each stop, as its commands ask: nothing is judged",
    "sanitize": "runs a program that launches kernels: tests/launching/test_triton.py reads the report",
    "judge": "judges a server: tests/validate/judge/test_judge.py reads the report",
    "asm": "makes files, as a compiler does: errors are all it says",
    "vulkan": "makes files, as a compiler does",
    "trace": "the command it wraps reports; what it shows of a log is for people",
}

# One line a command: what follows its name, and whether a model computed something. MODEL, OUT, DUMP, STREAM,
# CODE, KERNELS, BUNDLE, STORE and USAGE are files made for it.
COMMANDS = {
    "accept": "--device sim --budget 0.1s --no-model --page OUT.html",
    "assumptions": "",
    "bisect-env": "start VARIABLES.yaml --journal OUT.journal",
    "bring-up": "--device sim --up-to doctor --folder OUT",
    "bundle": "--device sim -o OUT.tar.gz",
    "bundle diff": "BUNDLE.tar.gz BUNDLE.tar.gz",
    "bundle export": "--kcidb -o OUT.txt --store STORE.sqlite",
    "bundle import": "BUNDLE.tar.gz --store OUT.sqlite",
    "bundle page": "-o OUT.html --store STORE.sqlite",
    "bundle show": "BUNDLE.tar.gz",
    "compare": "--model MODEL --tokens 1,2 --peers t_cpu --no-speed",
    "devices": "",
    "doctor": "--from MACHINE",
    "golden check": "GOLDEN --model MODEL",
    "golden dumper": "torch -o OUT.py",
    "golden import": "--from npz DUMP --model MODEL -o OUT.npz",
    "golden list": "",
    "golden make": "--model MODEL --tokens 1,2 --steps 1 -o OUT.npz",
    "golden make tiny": "--tiny qwen3 -o OUT.gguf",
    "image": "--model MODEL -o OUT -c 32",
    "inspect": "--model MODEL",
    "isa disasm": "--hex CODE",
    "kernel-test": "--tier t1 --device sim --kernel add --most 1 --jobs 1",
    "launch": "KERNELS.co --kernel saxpy --device sim --arg y=inout:f32[9] --arg x=in:f32[9] --arg a=f32:2 "
    "--arg n=i32:9",
    "logits": "--model MODEL --tokens 1,2 --out OUT.npz",
    "mem-test": "--device sim -k M01 --tiers t1",
    "models": "MODEL --slots 2",
    "perf bench": "--model MODEL --tier t_cpu --prompt-tokens 2 --tokens 2 --runs 2 --warmup 0",
    "perf gate": "--list",
    "perf history": "HISTORY.jsonl",
    "perf predict": "--model MODEL",
    "perf profile": "--model MODEL --tier t_cpu --steps 1 --bandwidth none",
    "perf report": "REPORTS -o OUT.html",
    "perplexity": "--model MODEL --tier t_cpu --ctx 16 --chunks 1",
    "pm4 decode": "STREAM --lint",
    "pm4-test": "--device sim -k P01,P20",
    "pull": "MODEL -o OUT",
    "replay": "LOG.zlog",
    "run": "--model MODEL --tokens 1,2 --max-tokens 2",
    "run probe": "--probe-tier",
    "sched-test": "--workload interactive --steps 40",
    "selftest": "--only numbers",
    "tokenize": "--model MODEL --text hello",
    "usage": "USAGE.sqlite --group-by tenant,model",
    "validate": "--model MODEL --tokens 1,2,3 --steps 1",
    "vulkan-test": "-k V01",
}
NEEDS_VULKAN = ("vulkan-test",)
COMPUTED = ("logits", "perf profile", "perplexity", "run", "validate")
POINTS = {point.name: point for point in entry_points(group="zinc_rt.commands")}


@pytest.fixture
def command_line(qwen3: str, tmp_path: Path) -> Callable[[str], list[str]]:
    """Convert a row of COMMANDS to arguments and create its files."""
    code, stream, dump = tmp_path / "code", tmp_path / "stream", tmp_path / "dump.npz"
    code.write_text("0000b0bf\n")  # s_endpgm
    stream.write_bytes(bytes.fromhex("001000c0") + bytes(4))  # a NOP of two dwords
    np.savez(dump, ids=np.array([1, 2], np.int32), logits=np.ones((2, 512), np.float32))
    files = {"MODEL": qwen3, "GOLDEN": qwen3.replace(".gguf", ".npz"), "DUMP": str(dump)}
    (tmp_path / "history.jsonl").touch()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "r.json").write_text(Report("validate").to_json())
    files |= {"HISTORY": str(tmp_path / "history"), "REPORTS": str(tmp_path / "reports")}
    backend = open_backend(ORACLE, "canonical-1")
    with Engine(read_gguf(qwen3), backend) as engine, record(engine, tmp_path / "log.zlog"):
        engine.forward([1, 2])
    files |= {"LOG": str(tmp_path / "log")}
    (tmp_path / "v.yaml").write_text(EXAMPLE)
    files |= {"VARIABLES": str(tmp_path / "v")}
    bundle = BundleMaker().make_bundle()
    write(bundle, tmp_path / "bundle.tar.gz")
    with BundleStore(tmp_path / "store.sqlite") as store:
        store.add(bundle)
    files |= {"BUNDLE": str(tmp_path / "bundle"), "STORE": str(tmp_path / "store")}
    ledger = UsageLedger(["ada"], {})
    usage = LedgerStore(tmp_path / "usage.sqlite", {"m": ledger})
    ledger.add(ledger.clear_step(), RunnerCounts().after(0, 0, 0, 0))
    usage.close()
    files |= {"USAGE": str(tmp_path / "usage"), "MACHINE": str(tmp_path / "machine")}
    MachineCapture(load_base("r9700-arch").files).write(tmp_path / "machine")
    with np.load(Path(__file__).parents[1] / "launching" / "code_objects.npz") as built:
        (tmp_path / "kernels.co").write_bytes(bytes(built["gfx1201_32"]))
    files |= {"KERNELS": str(tmp_path / "kernels")}
    files |= {"STREAM": str(stream), "CODE": str(code), "OUT": str(tmp_path / "out")}

    def command_words(row: str) -> list[str]:
        name = row.removesuffix(" tiny").removesuffix(" probe").split()
        rest = [
            files.get(stem, stem) + dot + suffix
            for stem, dot, suffix in (word.partition(".") for word in COMMANDS[row].split())
        ]
        return [*name, *rest]

    return command_words


def main(arguments: list[str]) -> int:
    return int(POINTS[arguments[0]].load()(arguments[1:]))


def test_every_command_is_covered() -> None:
    assert {row.split()[0] for row in COMMANDS} | set(NO_REPORT) == set(POINTS)


@pytest.mark.parametrize("row", COMMANDS)
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=14)
def test_report_has_every_key_and_verdict_matches_exit_code(
    row: str, command_line: Callable[[str], list[str]], capsys: Capture, request: pytest.FixtureRequest
) -> None:
    if row in NEEDS_VULKAN:
        request.getfixturevalue("vulkan_driver")
    code = main([*command_line(row), "--json", "-"])
    seen = capsys.readouterr()
    report = json.loads(seen.out)  # and nothing else on stdout
    assert list(report) == list(REPORT)
    for key, kind in REPORT.items():
        assert type(report[key]) is kind, f"{key} is {report[key]!r}"
    assert report["schema"] == "zinc-rt-report/1" and report["version"] == __version__
    assert row.removesuffix(" tiny").removesuffix(" probe").startswith(report["command"])
    assert report["results"], "something was looked at"
    for result in report["results"]:
        check_result(result)
    assert report["verdict"]["counts"] == Counter(result["status"] for result in report["results"])
    assert VERDICT[report["verdict"]["status"]] == report["verdict"]["exit"] == code == 0


def check_result(result: dict[str, Any]) -> None:
    assert set(result) == set(RESULT)
    for key, kind in RESULT.items():
        assert type(result[key]) is kind, f"{result['id']}: {key} is {result[key]!r}"
    assert result["id"] and result["kind"] and result["status"] in STATUS
    assert result["reason"] or result["status"] not in ("skip", "blocked"), f"{result['id']}: no reason"


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("row", COMPUTED)
def test_compute_device_is_named(row: str, command_line: Callable[[str], list[str]], capsys: Capture) -> None:
    anew = ["--no-cache"] if row == "validate" else []  # what is read from a cache did not run here
    main([*command_line(row), *anew, "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    assert set(report["device"]) >= {"name", "arch", "simulated", "profile"}
    assert set(report["model"]) >= {"path", "digest", "architecture"}
    assert report["device"]["simulated"] is False
    assert report["ordering"] == "canonical-1" and report["ctx"] > 0 and report["direct_compute_ops"] > 0


@pytest.mark.rest
@pytest.mark.parametrize("row", ["mem-test", "pm4-test"])
def test_simulated_device_is_marked_in_each_result(
    row: str, command_line: Callable[[str], list[str]], capsys: Capture
) -> None:
    main([*command_line(row), "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    assert report["device"]["simulated"] is True
    assert all(result["measure"]["simulated"] for result in report["results"])


@pytest.mark.parametrize("row", COMMANDS)
@pytest.mark.rest(keep=4)
def test_unwritable_report_is_rejected_before_the_work(
    row: str, command_line: Callable[[str], list[str]], tmp_path: Path, capsys: Capture
) -> None:
    assert main([*command_line(row), "--json", str(tmp_path / "missing" / "report.json")]) == 2
    seen = capsys.readouterr()
    assert "cannot write: the folder" in seen.err and not seen.out
    assert not list(tmp_path.glob("out*")), "nothing was made"
