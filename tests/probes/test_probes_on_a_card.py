"""pm4-test on a GPU of this machine: how far it goes unasked, what it notes, who else may run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cards import RENDER, Card, LitRegisters

from zinc_rt.cli.report import Report, Result
from zinc_rt.engine import checked
from zinc_rt.host import files, locks
from zinc_rt.kmd.discover import find_gpus
from zinc_rt.probes import command
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.output import passed

Capture = pytest.CaptureFixture[str]
NO_DISPLAY_KNOWN = type("Dark", (Card,), {"files": {}})


@pytest.fixture
def card_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(files, "open_lock_directory", lambda: tmp_path)
    install_card(monkeypatch, Card)
    return monkeypatch


def install_card(monkeypatch: pytest.MonkeyPatch, kind: type[Card]) -> None:
    for where in ("zinc_rt.probes.device.LinuxDriver", "zinc_rt.probes.output.passed.LinuxDriver"):
        monkeypatch.setattr(where, kind)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (LitRegisters, "this GPU drives card0-DP-1"),
        (NO_DISPLAY_KNOWN, "cannot determine whether this GPU drives a display"),
    ],
)
def test_default_hazard_is_0_where_a_display_could_freeze(
    card_machine: pytest.MonkeyPatch, capsys: Capture, kind: type[Card], message: str
) -> None:
    install_card(card_machine, kind)
    assert command.main(["-k", "P01,P15", "--tiers", "t1"]) == 0
    out = capsys.readouterr().out
    assert "hazard    0 by default" in out and message in out
    assert "P15/t1   skip" in out and "--hazard 1" in out
    assert command.main(["-k", "P15", "--tiers", "t1", "--hazard", "1"]) == 0, "asked for, it runs"


def test_default_hazard_is_1_elsewhere_and_never_2(card_machine: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert command.main(["-k", "P15,P44", "--tiers", "t1"]) == 0
    out = capsys.readouterr().out
    assert "P15/t1   pass" in out and "P44/t1   skip" in out and "--hazard 2" in out


def test_hazard_2_on_lit_display_also_needs_force(card_machine: pytest.MonkeyPatch, capsys: Capture) -> None:
    install_card(card_machine, LitRegisters)
    command.main(["-k", "P44", "--tiers", "t1", "--hazard", "2"])
    assert "--force runs it" in capsys.readouterr().out


def test_gpu_is_locked_exclusively_while_probes_run(
    card_machine: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "zinc-rt-renderD128.lock"
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        locks.take_lock(RENDER)
        os.write(writable, b"x")
        signal.pause()
    os.read(readable, 1)
    try:
        assert command.main(["-k", "P01"]) == 2
        assert f"{RENDER} is in use by pid {pid} " in capsys.readouterr().err and path.exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert command.main(["-k", "P01"]) == 0


def make_results(tier: str, *failed: str, omitted: str = "") -> list[Result]:
    names = [name for name in passed.NEEDED if name != omitted]
    hazard = {"hazard": 1}
    return [
        Result(f"{name}/{tier}", "probe", "fail" if name in failed else "pass", tier=tier, measure=hazard)
        for name in names
    ]


def test_passes_and_failures_are_recorded_per_tier(card_machine: pytest.MonkeyPatch) -> None:
    report = Report("pm4-test", results=[*make_results("t1"), *make_results("t2", "P33")])
    lines = passed.write_note(report, {"render_path": RENDER}, {}, hazard=1)
    assert lines[0].startswith("recorded  t1 passed") and "t2 failed (P33/t2)" in lines[1]
    driver = Card()
    setup = checked.identify_setup(driver, find_gpus(driver).gpus[0])
    assert checked.check_verdict(setup, "t1").passed and not checked.check_verdict(setup, "t2").passed
    driver.close_all()


def test_partial_probe_run_can_revoke_but_not_grant() -> None:
    assert passed.judge_results(make_results("t1"), "t1") == []
    assert passed.judge_results(make_results("t1", omitted="P41"), "t1") is None
    assert passed.judge_results(make_results("t1")[:1], "t2") is None
    assert passed.judge_results([Result("P20/t1", "probe", "fail", tier="t1")], "t1") == ["P20/t1"]
    host = Result("P01/host", "probe", "fail", tier="host")
    assert passed.judge_results([host], "t1") is None and passed.judge_results(
        [host, *make_results("t1")], "t1"
    ) == ["P01/host"]


def test_probe_that_crashed_the_machine_fails_unless_it_hangs_on_purpose() -> None:
    rows = make_results("t1", omitted="P27")
    rows += [Result("P27/t1", "probe", "skip", tier="t1", measure={"hazard": 1})]
    assert passed.judge_results(rows, "t1", {"P27/t1"}) == ["P27/t1"]
    meant = Result("P44/t1", "probe", "skip", tier="t1", measure={"hazard": 2})
    assert passed.judge_results([*make_results("t1"), meant], "t1", {"P44/t1"}) == []


def test_every_needed_probe_exists_and_runs_on_both_tiers() -> None:
    from zinc_rt.probes.registry import PROBES

    there = {probe.id: probe for probe in PROBES}
    assert all(there[name].tiers == ("t1", "t2") and there[name].hazard == 1 for name in passed.NEEDED)


def test_journal_is_stored_in_state_directory(card_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from zinc_rt.probes.journal import default_path

    assert default_path() == tmp_path / "state" / "zinc-rt" / "pm4-test.journal"
    Journal(default_path(), RENDER, boot="1").begin("P20/t1")
    assert Journal(default_path(), RENDER, boot="2").find_suspects()["P20/t1"].reset
