"""zinc-rt bundle as a command: made here and of a simulated device, shown, compared, collected."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from zinc_rt.doctor.bundle import command
from zinc_rt.doctor.bundle.format import read
from zinc_rt.probes import command as pm4_test

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("USER", "marmaduke")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bundle_contains_machine_hangs_and_additions_without_names(work_folder: Path, capsys: Capture) -> None:
    hang = work_folder / "zinc-rt-hangs" / "hang-20261122-1"
    hang.mkdir(parents=True)
    (hang / "report.txt").write_text("stuck at P20, said marmaduke\n")
    (hang / "devcoredump.bin").write_bytes(b"\0secret")
    (work_folder / "facts.json").write_text('{"version": 1, "chip": "gfx1201", "facts": {}}')
    (work_folder / "my.log").write_text("marmaduke was here\n")
    state = work_folder / "state" / "zinc-rt"
    state.mkdir(parents=True)
    (state / "pm4-test.journal").write_text('{"what": "begin", "probe": "P20/t1"}\n')
    assert command.main(["-o", "b.tar.gz", "--add", "facts.json", "my.log"]) == 0
    output = capsys.readouterr().out
    assert "wrote     b.tar.gz" in output and "review it" in output
    bundle = read(Path("b.tar.gz"))
    assert {"facts/facts.json", "logs/my.log", "logs/pm4-test.journal", "findings.json"} <= bundle.files.keys()
    masked = re.fullmatch(rb"(<user-\d>) was here\n", bundle.files["logs/my.log"])
    assert masked and b"said " + masked[1] in bundle.files["hangs/hang-20261122-1/report.txt"]
    assert not [name for name in bundle.files if "devcoredump" in name]
    assert any("devcoredump.bin is omitted" in note for note in bundle.manifest["notes"])


@pytest.mark.rest
def test_pm4_test_bundle_has_same_format_and_supports_all_actions(work_folder: Path, capsys: Capture) -> None:
    line = ["-k", "P20", "--tiers", "t1", "--device"]
    assert pm4_test.main([*line, "sim", "--bundle", "good.tar.zst"]) == 0
    assert pm4_test.main([*line, "sim:@6.17", "--inject", "no-eop", "--bundle", "bad"]) == 1
    capsys.readouterr()
    assert command.main(["show", "bad"]) == 0
    output = capsys.readouterr().out
    assert "SIMULATED" in output and "FAIL    P20/t1" in output and "cause: RELEASE_MEM faulted" in output
    assert command.main(["diff", "good.tar.zst", "bad"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"kernel +7\.0\.4 +6\.17\.13", output) and re.search(r"P20/t1 +pass +fail", output)
    assert command.main(["import", "good.tar.zst", "bad", "--store", "s.sqlite"]) == 0
    assert command.main(["import", "bad", "--store", "s.sqlite"]) == 0
    assert "known     bad" in capsys.readouterr().out
    assert command.main(["page", "-o", "p.html", "--store", "s.sqlite"]) == 0
    assert "2 bundles, 2 combinations, 1 probes, 0 regressions" in capsys.readouterr().out, "the newer one passes"
    assert "SIMULATED" in Path("p.html").read_text()
    assert command.main(["export", "--kcidb", "--simulated", "-o", "k.json", "--store", "s.sqlite"]) == 0
    assert len(json.loads(Path("k.json").read_text())["tests"]) == 2
    assert command.main(["-o", "again.tar.gz", "--device", "sim", "--add", "bad"]) == 0
    assert "hangs/P20-t1/report.txt" in read(Path("again.tar.gz")).files


def test_one_invalid_bundle_is_rejected_and_others_are_imported(work_folder: Path, capsys: Capture) -> None:
    command.main(["-o", "b.tar.gz"])
    (work_folder / "bad.tar.gz").write_bytes((work_folder / "b.tar.gz").read_bytes()[:-30])
    assert command.main(["import", "b.tar.gz", "bad.tar.gz"]) == 1
    output = capsys.readouterr().out
    assert (
        "refused   bad.tar.gz: not a bundle: damaged or cut short" in output
        and "bundles.sqlite: 1 bundles" in output
    )
    assert command.main(["import", "bad.tar.gz"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "x.zip"], "expected a folder, or a file that ends in .tar.gz"),
        (["-o", "missing/b.tar.gz"], "the folder"),
        (["-o", "."], "contains other files"),
        (["--add", "missing.json"], "no such file"),
        (["--device", "gpu0"], "expected auto, hw, sim"),
        (["show", "missing.tar.gz"], "no such file"),
        (["show", "."], "not a bundle: bundle.json: No such file"),
        (["diff", "x.txt", "x.txt"], "not a bundle"),
        (["page", "-o", "p.html"], "the store does not exist"),
        (["export", "--kcidb", "-o", "k.json"], "the store does not exist"),
        (["import", "x.txt", "--store", "x.txt"], "not a store of bundles"),
    ],
)
def test_usage_error_prints_one_line(work_folder: Path, words: list[str], message: str, capsys: Capture) -> None:
    (work_folder / "x.txt").write_text("no bundle, and no store either: some text that is long enough")
    assert command.main(words) == 2
    assert message in capsys.readouterr().err
