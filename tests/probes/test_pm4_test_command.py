"""zinc-rt-pm4-test and zinc-rt-mem-test as commands: usage, outputs, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from zinc_rt.backends.amd.kmd_log import KmsgLog
from zinc_rt.kmd.linux import LinuxDriver
from zinc_rt.probes import command, mem_command
from zinc_rt.probes.device import find_amd_gpus
from zinc_rt.probes.execution import GpuMessages

NO_GPU = not find_amd_gpus(LinuxDriver())
EARLY = "P01,P02,P03"  # quick, and nothing hazardous


@pytest.mark.skipif(not NO_GPU, reason="this machine has an AMD GPU")
@pytest.mark.parametrize("main", [command.main, mem_command.main])
def test_missing_amd_gpu_is_reported_with_the_simulation_command(
    main: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 77  # type: ignore[operator]
    errors = capsys.readouterr().err
    assert "this machine has no AMD GPU" in errors and "--device sim" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "gpu0"], "expected auto, hw, sim"),
        (["--device", "sim:gfx9999"], "unknown chip 'gfx9999'"),
        (["--device", "sim:@2.4"], "unknown Linux version '2.4'"),
        (["--device", "sim", "--inject", "gremlins"], "unknown injection 'gremlins'"),
        (["--inject", "no-eop"], "--device sim"),
        (["--reorder", "3"], "--device sim"),
        (["--device", "sim", "--tiers", "t3"], "expected t1, t2"),
        (["--device", "sim", "-k", "P99"], "matches no probe"),
        (["--device", "sim", "--expect", "/nowhere"], "no such file"),
    ],
)
def test_usage_error_prints_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--hazard", "3"], ["--timeout", "0"], ["--soak", "never"]])
def test_invalid_values_print_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.rest
def test_reordered_device_is_reported_and_probes_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    assert command.main(["--device", "sim", "-k", "P24", "--reorder", "7", "--json", str(out)]) == 0
    assert any("random order, seed 7" in line for line in json.loads(out.read_text())["shortcuts"])


def test_list_output_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    output = capsys.readouterr().out
    assert "P20" in output and "32-bit fence (alive)" in output and "P48" in output
    assert max(map(len, output.splitlines())) <= 140


def test_simulated_device_is_named_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {kind: tmp_path / kind for kind in ("json", "tap", "junit")}
    arguments = ["--device", "sim", "-k", EARLY]
    arguments += [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    assert command.main(arguments) == 0
    output = capsys.readouterr().out
    assert "SIMULATED AMD Radeon AI PRO R9700" in output.splitlines()[0]
    assert output.strip().splitlines()[-1].startswith("PASS") and "says nothing about hardware" in output
    report = json.loads(files["json"].read_text())
    assert report["schema"] == "zinc-rt-report/1" and report["device"]["simulated"] is True
    assert report["device"]["arch"] == "gfx1201" and report["device"]["kernel"] == "7.0.4"
    assert report["shortcuts"], "shortened time-outs are named"
    assert all(result["kind"] == "probe" and result["measure"]["simulated"] for result in report["results"])
    assert files["tap"].read_text().splitlines()[:2] == ["TAP version 14", "1..3"]
    assert len(Xml.fromstring(files["junit"].read_text()).findall("testcase")) == 3


def test_failure_ends_with_cause_advice_and_repro(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle"
    arguments = ["--device", "sim", "-k", "P20", "--tiers", "t1", "--inject", "no-eop", "--bundle", str(bundle)]
    assert command.main([*arguments, "--tap", str(tmp_path / "tap")]) == 1
    output = capsys.readouterr().out
    for word in ("evidence", "cause", "no EOP buffer", "advice", "repro     zinc-rt-pm4-test --device sim -k P20"):
        assert word in output
    assert output.strip().splitlines()[-1].startswith("FAIL")
    assert "ring around rptr" in (bundle / "logs" / "P20-t1.txt").read_text()
    assert "page fault" in (bundle / "logs" / "kernel.log").read_text()
    hang = bundle / "hangs" / "P20-t1"
    assert (hang / "ring.bin").stat().st_size == 1 << 16
    assert json.loads((bundle / "reports" / "pm4-test.json").read_text())["verdict"]["exit"] == 1
    assert "not ok 1 - P20/t1" in (tmp_path / "tap").read_text()


@pytest.mark.rest
def test_named_tier_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    off = ["--device", "sim", "-k", "P06", "--inject", "user-queue-off"]
    assert command.main(off) == 77, "unavailable, and nothing else ran"
    assert "amdgpu.user_queue=1" in capsys.readouterr().out
    assert command.main([*off, "--tiers", "t2"]) == 1


def test_json_on_stdout_is_the_only_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "sim", "-k", "P01", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["status"] == "PASS"


def test_expectation_file_for_another_chip_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gfx1100.txt"
    path.write_text("chip gfx1100\nfail P20 fans too loud\n")
    assert command.main(["--device", "sim", "-k", "P01", "--expect", str(path)]) == 2
    assert "is for gfx1100" in capsys.readouterr().err


def test_hazard_0_excludes_probes_that_may_hang(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "sim", "-k", "P01,P18", "--hazard", "0"]) == 0
    assert "--hazard 1" in capsys.readouterr().out


def test_unreadable_log_is_reported_with_the_fix(tmp_path: Path) -> None:
    messages = GpuMessages(simulated=False, log=KmsgLog(str(tmp_path / "kmsg")))
    assert "cannot be read" in messages.missing and "dmesg_restrict=0" in messages.missing
    assert messages.lines() == ()


@pytest.mark.rest
def test_mem_test_has_a_separate_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert mem_command.main(["--list"]) == 0
    assert "M03" in capsys.readouterr().out
    assert mem_command.main(["--device", "sim", "-k", "M02", "--tiers", "t1"]) == 0
    assert "SIMULATED" in capsys.readouterr().out
