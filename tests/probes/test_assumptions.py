"""The list of assumptions, what leans on each, what cards told, and rows flipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.cli.report import Report, Result
from zinc_rt.host.facts import find_fact, flipped, load_table, report_rows
from zinc_rt.probes import command as pm4_test
from zinc_rt.probes.learning import assumptions, leaning
from zinc_rt.probes.output.table import format_verdict
from zinc_rt.probes.registry import PROBES

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def probed_assumptions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The recorded dependencies of some probes, by probe and tier."""
    out = tmp_path_factory.mktemp("probed") / "report.json"
    assert pm4_test.main(["--device", "sim", "-k", "P20,P40,P52", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    ids = {row["id"] for row in report["details"]["assumptions"]}
    result = {result["id"]: result["measure"]["assumptions"] for result in report["results"]}
    assert ids == {id for ids in result.values() for id in ids}
    return result


def list_assumptions(tmp_path: Path, *words: str) -> dict[str, dict[str, Any]]:
    out = tmp_path / "assumptions.json"
    assert assumptions.main([*words, "--json", str(out)]) == 0
    return {result["id"]: result for result in json.loads(out.read_text())["results"]}


@pytest.mark.rest
def test_probe_lists_assumptions_it_depends_on(probed_assumptions: dict[str, list[str]]) -> None:
    assert "code_without_invalidate" in probed_assumptions["P40/t1"]
    assert "code_without_invalidate" not in probed_assumptions["P20/t1"]
    assert "protected_fence" in probed_assumptions["P52/t2"]


def test_verdict_names_dependencies() -> None:
    report = Report("pm4-test", results=[Result("P20/t1", "probe", "pass")])
    report.details["assumptions"] = report_rows([find_fact("counter"), find_fact("protected_fence")])
    output = format_verdict(report, strict=False)
    assert output.startswith("PASS")
    assert output.endswith(", depends on 2 unverified assumptions: counter, protected_fence")


@pytest.mark.rest
def test_dependency_file_is_up_to_date(probed_assumptions: dict[str, list[str]]) -> None:
    kept = leaning.load_dependencies()
    assert {name: list(kept[f"pm4-test {name}"]) for name in probed_assumptions} == probed_assumptions


def test_dependency_file_names_existing_results_and_rows() -> None:
    probes = {f"pm4-test {probe.id}/{tier}" for probe in PROBES for tier in probe.tiers}
    kept = leaning.load_dependencies()
    assert {name for name in kept if name.startswith("pm4-test ")} <= probes
    assert {id for ids in kept.values() for id in ids} <= {row.id for row in load_table().values() if row.assumed}
    assert len(kept) > 60


def test_assumed_rows_are_listed_by_number_of_dependents(tmp_path: Path, capsys: Capture) -> None:
    result = list_assumptions(tmp_path)
    assert set(result) - {"facts.yaml"} == {row.id for row in load_table().values() if row.assumed}
    counts = [len(result["measure"]["leaning"]) for id, result in result.items() if id != "facts.yaml"]
    assert counts == sorted(counts, reverse=True) and counts[0] > 10
    protected_fence = result["protected_fence"]
    assert protected_fence["status"] == "skip" and "settled by protected_fence, P52" in protected_fence["reason"]
    assert protected_fence["measure"]["value"] == "waits" and protected_fence["measure"]["other"] == ["at once"]


def test_every_row_lists_its_origin(tmp_path: Path) -> None:
    result = list_assumptions(tmp_path, "--all", "ioctl/")
    assert result["ioctl/AMDKFD_IOC_CREATE_QUEUE"]["measure"]["from"] == "source"
    assert "kfd_queue.c" in result["ioctl/AMDKFD_IOC_CREATE_QUEUE"]["measure"]["where"]
    assert all(id.startswith("ioctl/") or id == "facts.yaml" for id in result)


def test_one_row_is_described_in_words(capsys: Capture) -> None:
    assert assumptions.main(["-v", "protected_fence"]) == 0
    output = capsys.readouterr().out
    assert "because" in output and "or        at once" in output and "pm4-test P52/t2" in output


def test_constant_value_is_read_from_its_definition() -> None:
    assert assumptions.read_value(find_fact("counter")) == 100_000_000
    assert assumptions.read_value(find_fact("chip/r9700/sustained_mhz")) == {"r9700": 2350}
    assert assumptions.read_value(find_fact("chip/*/cus"))["rx9070"] == 56


def test_fact_learned_on_a_card_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    file = {"version": 1, "chip": "gfx1201", "kernel": "6.18.36", "simulated": False, "firmware": {"MEC": 3060}}
    file["facts"] = {"protected_fence": {"value": "at once", "how": "a test", "probe": "L14"}}
    (tmp_path / "r9700-6.18.36-3060.json").write_text(json.dumps(file))
    (tmp_path / "sim.json").write_text(json.dumps({**file, "simulated": True}))
    monkeypatch.setattr(assumptions, "LEARNED", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    protected_fence = list_assumptions(out)["protected_fence"]
    assert protected_fence["status"] == "pass" and protected_fence["measure"]["from"] == "measured"
    assert protected_fence["measure"]["where"] == "'at once' (r9700-6.18.36-3060.json)"


def test_card_files_in_the_tree_come_from_real_cards() -> None:
    for name, facts in assumptions.read_cards(assumptions.LEARNED).items():
        assert not facts.simulated and facts.kernel and facts.firmware, name
    assert not [path for path in assumptions.LEARNED.iterdir() if path.suffix not in (".json", ".md")]


@pytest.mark.rest
def test_negating_a_row_runs_its_dependents(tmp_path: Path, capsys: Capture) -> None:
    assert assumptions.main(["--flip", "code_without_invalidate"]) == 0
    output = capsys.readouterr()
    assert "flipped   code_without_invalidate: fresh instead of stale" in output.err
    assert "without invalidate fresh" in output.out and "2 probes" in output.out
    assert flipped.get() == ()


@pytest.mark.rest
def test_any_command_can_run_with_a_negated_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "report.json")
    words = ["pm4-test", "--device", "sim", "--learn", str(tmp_path / "f.json"), "-k", "L15", "--json", out]
    assert assumptions.main(["--flip", "ib-nesting", "--", *words]) == 0
    report = json.loads(Path(out).read_text())
    assert report["results"][0]["measure"]["value"] == 1  # the queue stops at the second buffer
    assert "the simulated device has assumption ib-nesting negated" in report["shortcuts"]


@pytest.mark.rest
def test_pm4_test_negates_rows_and_repro_line_includes_them(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    words = ["--device", "sim", "-k", "P20", "--tiers", "t1", "--flip", "protected_fence", "--inject", "no-eop"]
    assert pm4_test.main([*words, "--json", str(out)]) == 1
    assert "--flip protected_fence" in json.loads(out.read_text())["results"][0]["repro"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody"], "no such row: nobody"),
        (["--flip", "nobody"], "no fact 'nobody'"),
        (["--flip", "counter"], "no alternative value"),
        (["--flip", "writes-count"], "no probe is known to depend on writes-count"),
        (["--flip", "protected_fence", "--all"], "--flip must be used alone"),
        (["--flip", "protected_fence", "--", "nothing"], "no command 'nothing'"),
        (["--", "pm4-test"], "-- COMMAND requires --flip"),
        (["--record"], "--record needs reports"),
        (["--record", "absent.json"], "absent.json: cannot be read"),
    ],
)
def test_usage_error_prints_one_line(words: list[str], message: str, capsys: Capture) -> None:
    assert assumptions.main(words) == 2
    assert message in capsys.readouterr().err


def test_only_simulated_device_accepts_negated_rows(capsys: Capture) -> None:
    assert pm4_test.main(["--flip", "protected_fence"]) == 2
    assert "--flip: supported only by a simulated device" in capsys.readouterr().err


def test_report_without_assumptions_is_rejected(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "r.json").write_text('{"results": []}')
    assert assumptions.main(["--record", str(tmp_path / "r.json")]) == 2
    assert "no result in the file lists assumptions" in capsys.readouterr().err


def test_recorded_dependencies_are_read_back(tmp_path: Path) -> None:
    kept = {"pm4-test P20/t1": ("protected_fence",), "pm4-test P18/t1": ()}
    leaning.save_dependencies(kept, tmp_path / "l.json")
    assert leaning.load_dependencies(tmp_path / "l.json") == kept
