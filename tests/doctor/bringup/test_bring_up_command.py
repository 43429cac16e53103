"""zinc-rt bring-up as a command: from end to end on a simulated device, its status, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.doctor.bringup import command
from zinc_rt.doctor.bundle import command as bundle_command
from zinc_rt.kmd.linux import LinuxDriver
from zinc_rt.probes.device import find_amd_gpus

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "zinc-rt"


@pytest.mark.skipif(bool(find_amd_gpus(LinuxDriver())), reason="this machine has an AMD GPU")
def test_missing_gpu_is_reported_with_the_simulation_command(capsys: Capture) -> None:
    assert command.main([]) == 77
    assert "bring-up --device sim" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--up-to", "hazard-3"], "--up-to hazard-3: no such stage"),
        (["--yes", "all"], "--yes all: no such stage"),
        (["--inject", "no-eop"], "--device sim"),
        (["--device", "gpu0"], "expected auto, hw, sim"),
        (["--device", "sim", "--folder", "/proc/nowhere"], "cannot be written"),
    ],
)
def test_usage_error_prints_one_line(words: list[str], message: str, capsys: Capture) -> None:
    assert command.main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.rest
def test_faulty_simulated_card_stops_at_first_cause_and_bundle_records_it(
    state_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    faulty = ["--device", "sim", "--inject", "old-kfd", "--yes", "all", "--json", str(out)]
    assert command.main(faulty) == 1
    output = capfd.readouterr().out
    assert "first cause" in output and "SIMULATED device: says nothing about hardware" in output.splitlines()[-1]
    report = json.loads(out.read_text())
    assert [row["id"] for row in report["results"]] == ["doctor", "hazard-0"]
    last = report["results"][-1]
    assert (
        last["status"] == "fail"
        and last["reason"].startswith("P0")
        and last["repro"]
        and last["measure"]["simulated"]
    )
    assert command.main(["--device", "sim", "--status"]) == 1
    assert "hazard-0      fail" in capfd.readouterr().out
    assert bundle_command.main(["--device", "sim", "-o", "b.tar.gz"]) == 0
    output = capfd.readouterr().out
    assert "bring-up-hazard-0.json: pm4-test FAIL" in output and Path("b.tar.gz").stat().st_size < 2_000_000


def test_injected_sickness_is_diagnosed_before_the_first_probe(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "sim", "--inject", "no-kfd-node", "--up-to", "hazard-0"]) == 1
    out = capfd.readouterr().out
    assert "/dev/kfd" in out.partition("first cause")[2]
    assert "hazard-0" not in out


def test_simulated_card_without_terminal_needs_consent(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "sim", "--up-to", "hazard-0"]) == 0
    assert "no terminal to ask: --yes hazard-0 consents" in capfd.readouterr().out


def test_status_before_any_run_exits_77(capsys: Capture) -> None:
    assert command.main(["--device", "sim", "--status"]) == 77
    assert "nothing ran yet on sim" in capsys.readouterr().out


def test_walks_of_each_device_are_stored_separately(state_folder: Path, capsys: Capture) -> None:
    folder = state_folder / "bring-up" / "sim"
    with command._lock_folder(folder):
        assert command.main(["--device", "sim"]) == 2
    assert "another bring-up is using" in capsys.readouterr().err


@pytest.mark.slow
def test_simulated_card_is_walked_from_doctor_to_gates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    assert command.main(["--device", "sim", "--yes", "all", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert [row["status"] for row in report["results"]] == ["pass"] * 6 + ["blocked"]
    assert bundle_command.main(["--device", "sim", "-o", "b.tar.gz"]) == 0
    assert Path("b.tar.gz").stat().st_size < 2_000_000
    capfd.readouterr()
    assert command.main(["--device", "sim", "--resume", "--yes", "all"]) == 0
    assert capfd.readouterr().out.count("passed already") == 6
