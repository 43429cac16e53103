"""A tier is one file and one row: every command has it then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.spec import BackendSpec
from zinc_rt.cli import devices as devices_command
from zinc_rt.cli import run
from zinc_rt.cli.command import read_environment
from zinc_rt.engine import devices
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.perf.structure import measures
from zinc_rt.perf.structure.lab import Lab
from zinc_rt.replay import command as replay
from zinc_rt.trace import command as trace
from zinc_rt.validate import command as validate

ROW = BackendSpec("t_more", "one more", "one_more_tier", preference=50, kernel_sets=("numpy-reference", "beads"))
MODEL = str(FOLDER / "qwen3-q.gguf")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def extra_tier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "SPECS", (*registry.SPECS, ROW))
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_help_lists_the_new_tier(capsys: Capture) -> None:
    for main in (run.main, trace.main):
        with pytest.raises(SystemExit):
            main(["--help"])
    assert "t_more or auto" in " ".join(capsys.readouterr().out.split())


@pytest.mark.rest
def test_devices_and_probe_tier_report_it_as_usable(capsys: Capture) -> None:
    assert devices_command.main([]) == 0
    assert "t_more on abacus" in capsys.readouterr().out.splitlines()[-1]
    assert run.main(["--probe-tier"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:3] == ["t_more", "usable", "beads"] and out[-1] == "auto selects t_more"


def test_auto_selects_the_preferred_tier(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert choose_tier("auto").tier == "t_more"
    monkeypatch.setenv("ZINC_RT_TIER", "t_more")
    assert run.main(["--model", MODEL, "--tokens", "1,2", "--max-tokens", "2"]) == 0
    assert "tier      t_more: asked for" in capsys.readouterr().err


def test_settings_accept_the_tier_and_reject_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_RT_TIER", "t_more")
    assert read_environment().tier == "t_more"
    monkeypatch.setenv("ZINC_RT_TIER", "t_less")
    with pytest.raises(UsageError, match="ZINC_RT_TIER='t_less': expected auto"):
        read_environment()


def test_validate_compares_the_tier_and_its_log_replays(tmp_path: Path, capsys: Capture) -> None:
    report, log = tmp_path / "r.json", tmp_path / "run.zlog"
    tokens = ["--model", MODEL, "--tokens", "1,2,3"]
    assert validate.main([*tokens, "--steps", "1", "--tiers", "t_more:beads,t_cpu", "--json", str(report)]) == 0
    assert {result["tier"] for result in json.loads(report.read_text())["results"]} >= {"t_more:beads"}
    assert trace.main(["-o", str(log), "--", "run", *tokens, "--tier", "t_more", "--max-tokens", "2"]) == 0
    assert replay.main([str(log)]) == 0 and "t_more" in capsys.readouterr().out


def test_gates_measure_the_tier() -> None:
    with Lab(device="cpu") as lab:
        assert lab.open_engine("t_more").engine.backend.spec is ROW
        assert measures.nodes_not_run(lab, "t_more").value == 0
        assert measures.rank_of_tier(lab, "t_more").value == 1


def test_name_is_parsed_as_tier_and_kernel_set() -> None:
    assert registry.parse("t_more:beads") == (ROW, "beads") and registry.parse("t_more") == (ROW, "")
    with pytest.raises(UsageError, match="t_more has no kernel set 'pearls'"):
        registry.parse("t_more:pearls")
    with pytest.raises(UsageError, match=r"unknown tier 't_less'; expected one of .*t_more"):
        registry.parse("t_less")
    with pytest.raises(UnsupportedError, match="tier t_cuda is not built in this version"):
        registry.parse("t_cuda")


def test_backend_has_its_tier_row() -> None:
    backend = open_backend(choose_tier("t_more:beads"), "canonical-1", threads=3)
    assert backend.spec is ROW and backend.instrument is None
    backend.close()
