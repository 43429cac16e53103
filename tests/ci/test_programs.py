"""ci/run.py programs: what is missing, the mirror, and the verdict on a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "ci"))
import programs

from zinc_rt.host.errors import NothingRan


def test_offline_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "FOLDER", tmp_path)
    report = tmp_path / "report.json"
    assert programs.main(["--offline", "rocminfo", "--json", str(report)]) == 77
    output = capsys.readouterr().out
    assert "rocminfo" in output and output.splitlines()[-1] == "NOTHING RAN  1 skip"
    [row] = json.loads(report.read_text())["programs"]
    assert row["status"] == "skip" and "without --offline" in row["reason"]


def test_unpacked_packages_are_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FOLDER", tmp_path)
    packages = programs.PackageFolder("sid")
    packages.at.mkdir()
    packages.list.write_text(json.dumps([{"name": "rocminfo", "version": "1", "sha256": ""}]))
    packages.install(("rocminfo",), offline=True)
    with pytest.raises(NothingRan, match="clinfo"):
        packages.install(("rocminfo", "clinfo"), offline=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list", "# deb http://other/debian x\ndeb [arch=amd64] http://mirror/debian bookworm main\n"),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: http://mirror/debian/\nSuites: bookworm\n"),
    ],
)
def test_mirror_is_the_configured_one(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/another.list").write_text("deb https://tools.example/apt stable main\n")
    with pytest.raises(NothingRan, match="Debian mirror"):
        programs.find_mirror(tmp_path)
    (tmp_path / name).write_text(text)
    assert programs.find_mirror(tmp_path) == "http://mirror/debian"


@pytest.mark.parametrize(
    ("rules", "status", "reason"),
    [
        (["known"], "pass", "known: why"),
        (["known", "race"], "fail", "1 findings: race: what"),
    ],
)
def test_unknown_findings_fail(
    rules: list[str], status: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_report(line: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        findings = [{"rule": rule, "first": "what"} for rule in rules]
        Path(line[line.index("--json") + 1]).write_text(json.dumps({"details": {"findings": findings}}))
        return subprocess.CompletedProcess(line, 0, "right", "")

    monkeypatch.setattr(programs.subprocess, "run", write_report)
    monkeypatch.setattr(programs, "KNOWN", {"a program": {"known": "why"}})
    result = programs.run_on_device("a program", ("x",), "^right", {})
    assert (result.status, result.reason, len(result.findings)) == (status, reason, len(rules))


LAUNCHED = "queue 1 KERNEL_DISPATCH, launched at a.cpp:9 (a.out+0x5)"
PAST_END = "0 bytes past the end of hipMalloc of 100 bytes at"


@pytest.mark.parametrize(
    ("rule", "findings", "status"),
    [
        ("out-of-bounds", (), "fail"),
        ("out-of-bounds", (f"out-of-bounds: {LAUNCHED}: {PAST_END} a.cpp:7 (a.out+0x3)",), "pass"),
        ("out-of-bounds", (f"out-of-bounds: {LAUNCHED}: {PAST_END} a.out+0x3",), "fail"),
        ("out-of-bounds", (f"out-of-bounds: {PAST_END} a.cpp:7 (a.out+0x3)",), "fail"),
        ("out-of-bounds", (f"out-of-bounds: {LAUNCHED}: {PAST_END} a.cpp:7", f"race: {LAUNCHED}"), "fail"),
        ("race", (f"race: {LAUNCHED}: other wave",), "pass"),
        ("race", ("race: queue 1 KERNEL_DISPATCH: other wave",), "fail"),
        ("missing-barrier", (f"missing-barrier: {LAUNCHED} writes what {LAUNCHED} reads",), "pass"),
        ("missing-barrier", (f"missing-barrier: {LAUNCHED} writes what queue 2 reads",), "fail"),
    ],
)
def test_planted_errors_must_be_named(rule: str, findings: tuple[str, ...], status: str) -> None:
    result = programs.ProgramResult("hip/planted", "fail", "1 findings", 1.0, findings)
    assert programs.judge_planted(result, rule).status == status


@pytest.mark.rest
@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("echo right", "pass", ""),
        ("echo other", "fail", "exit code 0: other; no '^right' in its output"),
        ("echo right; exit 3", "fail", "exit code 3: right"),
    ],
)
def test_verdict_needs_exit_code_and_output(script: str, status: str, reason: str) -> None:
    result = programs.run_on_device("a program", ("sh", "-c", script), "^right", {})
    assert (result.status, result.reason, result.findings) == (status, reason, ())


OFFLOADED = "load_tensors: offloaded 3/3 layers to GPU\n"


@pytest.mark.parametrize(
    ("text", "log", "rules", "status"),
    [
        ("Hello a (b", OFFLOADED, ["wait"], "pass"),
        ("Hello a (c", OFFLOADED, [], "fail"),
        ("Hello a (b", "load_tensors: offloaded 2/3 layers to GPU\n", [], "fail"),
        ("Hello a (b", OFFLOADED, ["race"], "fail"),
    ],
)
def test_llama_must_compute_the_text_of_its_cpu_backend_on_the_card(
    text: str, log: str, rules: list[str], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[list[str]] = []

    def run(line: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        lines.append(line)
        if "--json" not in line:
            return subprocess.CompletedProcess(line, 0, "Hello a (b\n", "")
        findings = [{"rule": rule, "first": "what"} for rule in rules]
        Path(line[line.index("--json") + 1]).write_text(json.dumps({"details": {"findings": findings}}))
        return subprocess.CompletedProcess(line, 0, text, log)

    monkeypatch.setattr(programs.subprocess, "run", run)
    [program] = [item for item in programs.PROGRAMS if item.name == "llama"]
    result = programs.run_llama(program, programs.PackageFolder("sid"), Path("tiny.gguf"))
    assert (result.name, result.status) == ("llama:tiny", status), result.reason
    on_cpu, on_card = lines
    assert "none" in on_cpu and on_card[on_card.index("--chip") + 1] == "rx7900xtx" and "99" in on_card
