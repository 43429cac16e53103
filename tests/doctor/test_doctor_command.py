"""The command: what it prints, writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sick_machines as corpus

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.command import main

Said = pytest.CaptureFixture[str]


def write_capture(tmp_path: Path, name: str) -> str:
    """A base machine or one of the faulty machines, as a capture."""
    machines = {machine.name: machine.capture for machine in corpus.list_machines() if machine.name == name}
    machines.get(name, MachineCapture(corpus.load_base(name.partition("@")[2] or name).files)).write(
        tmp_path / "machine"
    )
    return str(tmp_path / "machine")


def test_healthy_machine_exits_0(tmp_path: Path, capsys: Said) -> None:
    assert main(["--from", write_capture(tmp_path, "r9700-ubuntu")]) == 0
    assert "OK        no problem found" in capsys.readouterr().out


def test_broken_machine_exits_1_with_first_cause(tmp_path: Path, capsys: Said) -> None:
    assert main(["--from", write_capture(tmp_path, "psp-refuses@r9700-ubuntu")]) == 1
    out = capsys.readouterr().out
    assert "BROKEN    first cause: the PSP rejected firmware" in out
    assert "  do      power-cycle the machine" in out and "  seen    kernel.log: " in out
    assert "  follows amdgpu failed to initialise the GPU" in out


def test_bundle_is_read_through_its_machine_folder(tmp_path: Path) -> None:
    write_capture(tmp_path, "r9700-ubuntu")
    assert main(["--from", str(tmp_path)]) == 0


def test_report_is_complete_and_has_same_exit_code(tmp_path: Path, capsys: Said) -> None:
    code = main(["--from", write_capture(tmp_path, "mes-hang@r9700-arch"), "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    assert code == report["verdict"]["exit"] == 1
    assert report["details"]["first_cause"] == "log.mes"
    mes = next(result for result in report["results"] if result["id"].startswith("log.mes"))
    assert (
        mes["status"] == "fail" and mes["advice"] and mes["measure"]["cause_of"] == ["log.preemption", "log.reset"]
    )
    row = report["details"]["rows"][0]
    assert row["chips"] == ["gfx1201"] and row["kernel"] == "7.1.6-arch1-1" and row["firmware"]["MES"] == "== 0x86"


def test_report_without_gpu_exits_77_too(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "lspci.txt").write_text("00:02.0 VGA compatible controller: Intel Corporation Device\n")
    assert main(["--from", str(tmp_path), "--json", "-"]) == 77
    assert json.loads(capsys.readouterr().out)["verdict"]["exit"] == 77


def test_verbose_flag_prints_all_evidence(tmp_path: Path, capsys: Said) -> None:
    where = write_capture(tmp_path, "r9700-dkms")
    main(["--from", where])
    assert "amdgpu comes from DKMS" not in capsys.readouterr().out
    main(["--from", where, "-v"])
    assert "amdgpu comes from DKMS: 6.18.2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "MISSING"], "no such folder"),
        (["--from", "EMPTY"], "EMPTY: not a capture (no proc/, sys/, "),
        (["--from", "FILE"], "not a tar or zip file"),
        (["--device", "sim"], "a simulated device has nothing to diagnose"),
        (["--capture", "FULL"], "is not empty"),
        (["--json", "MISSING/report.json"], "the folder"),
    ],
)
def test_usage_error_exits_2_with_one_line(words: list[str], message: str, tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "FILE").write_text("words")
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "x").touch()
    named = [str(tmp_path / word) if word.isupper() or "/" in word else word for word in words]
    assert main(named) == 2
    seen = capsys.readouterr()
    assert message in seen.err and not seen.out


def test_missing_gpu_is_rejected_with_list_of_present_ones(tmp_path: Path, capsys: Said) -> None:
    assert main(["--from", write_capture(tmp_path, "two-r9700"), "--device", "renderD200"]) == 2
    assert "one of 0000:03:00.0, 0000:43:00.0" in capsys.readouterr().err


def test_stored_capture_gets_same_diagnosis(tmp_path: Path, capsys: Said) -> None:
    where = write_capture(tmp_path, "fatal-aer@rx7900xtx")
    assert main(["--from", where, "--capture", str(tmp_path / "copy")]) == 1
    first = capsys.readouterr().out
    assert main(["--from", str(tmp_path / "copy")]) == 1
    assert capsys.readouterr().out in first


def test_local_machine_is_read_without_side_effects(tmp_path: Path, capsys: Said) -> None:
    """Whatever it is: an exit code of the table, and a capture that says the same."""
    code = main(["--capture", str(tmp_path / "here")])
    assert code in (0, 1, 77)
    assert main(["--from", str(tmp_path / "here")]) == code


def test_terminal_escapes_in_capture_are_neutralised(tmp_path: Path, capsys: Said) -> None:
    where = Path(write_capture(tmp_path, "mes-hang@r9700-ubuntu"))
    log = where / "kernel.log"
    log.write_bytes(log.read_bytes().replace(b"REMOVE_QUEUE", b"\x1b[2J\x07REMOVE"))
    main(["--from", str(where), "-v"])
    assert "\x1b" not in capsys.readouterr().out
