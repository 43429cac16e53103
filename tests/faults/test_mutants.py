"""Mutants are drawn by seed from every package, change one place, and are judged by what commands end with."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from fault_plant import ROOT
from fault_walk import CommandOutput
from mutant import LINES, Mutant, draw_mutants, list_sources, mutate_file, mutate_lines, mutate_python
from mutate_command import COMMANDS, MutantResult, judge_mutant, judge_records, lower_bound, main

SAMPLE = "def f(x):\n    if x[0] < 3:\n        g(x)\n    return x is None\n"


def test_python_changes_comparisons_numbers_indices_and_calls() -> None:
    changes = {(what, line): text for what, line, text in mutate_python(SAMPLE)}
    assert set(changes) == {
        ("comparison", 2),
        ("index", 2),
        ("constant", 2),
        ("dropped call", 3),
        ("comparison", 4),
    }
    assert "x[0] <= 3" in changes["comparison", 2] and "x[1] < 3" in changes["index", 2]
    assert "    pass\n" in changes["dropped call", 3] and "x is not None" in changes["comparison", 4]
    for text in changes.values():
        ast.parse(text)


@pytest.mark.parametrize(
    ("language", "line", "changes"),
    [
        ("kernel", "  s_wait_loadcnt 0x0", {"dropped wait": ""}),
        ("kernel", " v_cmp_lt_u32 v0, v1", {"bound": " v_cmp_le_u32 v0, v1", "register": " v_cmp_lt_u32 v0, v2"}),
        ("C", "for (i = 0; i < n; i++) x[3] = 0;", {
            "comparison": "for (i = 0; i <= n; i++) x[3] = 0;", "index": "for (i = 0; i < n; i++) x[4] = 0;",
            "constant": "for (i = 1; i < n; i++) x[3] = 0;"}),
        ("GLSL", "    barrier();", {"dropped barrier": ""}),
        ("table", "  count: 7  # of them", {"number": "  count: 8  # of them"}),
    ],
)  # fmt: skip
def test_other_languages_change_one_line(language: str, line: str, changes: dict[str, str]) -> None:
    assert {what: text for what, _, text in mutate_lines(line, language)} == changes
    assert set(LINES) == {"kernel", "C", "GLSL", "table"}


def test_same_seed_draws_the_same_from_every_package() -> None:
    packages = list_sources()
    mutants = draw_mutants(3, 2 * len(packages))
    assert mutants == draw_mutants(3, 2 * len(packages)) != draw_mutants(4, 2 * len(packages))
    fitting = {
        name for name, files in packages.items() if any(list(mutate_file(name, file)) for file in files[:9])
    }
    assert {mutant.package for mutant in mutants} >= fitting
    assert all(mutant.text != (ROOT / mutant.file).read_text(encoding="utf-8") for mutant in mutants)
    assert not any(name.startswith("tests/") for names in packages.values() for name in names)


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [("", 0, "survived"), ("", 77, "survived"), ("FAIL", 1, "killed"), ("", 124, "hung"), ("", -11, "crashed"),
     ("Traceback (most recent call last)", 1, "crashed")],
)  # fmt: skip
def test_outcome_follows_from_the_commands(
    text: str, code: int, outcome: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def run_command(command: str, tree: Path, cache: Path, *, seconds: float) -> CommandOutput:
        seen.append((tree / "README.md").read_text(encoding="utf-8"))
        return CommandOutput(command, code, text)

    def make_tree(target: Path) -> Path:
        target.mkdir()
        return target

    monkeypatch.setattr("mutate_command.run_command", run_command)
    monkeypatch.setattr("mutate_command.copy_tree", make_tree)
    result = judge_mutant(
        Mutant("x", "README.md", "table: number", 1, "changed"), cache=tmp_path, budget_seconds=1
    )
    assert result.outcome == outcome and set(seen) == {"changed"}


def test_crashes_are_counted_apart() -> None:
    outcomes = ["killed"] * 9 + ["survived", "crashed", "hung", "not built"]
    verdict = judge_records({"outcome": outcome} for outcome in outcomes)
    assert verdict["status"] == "pass"
    assert judge_records({"outcome": outcome} for outcome in outcomes[1:])["status"] == "fail"
    assert verdict["measure"]["headline"] == "killed 90% of 10 that ran to their end, lower bound 60%"
    assert verdict["reason"] == "13 mutants: 9 killed, 1 crashed, 1 hung, 1 survived, 1 not built"
    assert lower_bound(142, 150) == pytest.approx(0.898, abs=1e-3) and lower_bound(0, 0) == 0


def test_list_shows_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--count", "3", "--seed", "1"]) == 0
    assert capsys.readouterr().out.count("@@") == 6


@pytest.fixture
def quick_judge(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make every mutant killed at once, and the unmodified tree healthy. Return the files of judged mutants."""
    judged: list[str] = []

    def kill(mutant: Mutant, *, cache: Path, budget_seconds: float) -> MutantResult:
        judged.append(mutant.file)
        return MutantResult(mutant, "killed", "validate", 1.0)

    monkeypatch.setattr("mutate_command.judge_mutant", kill)
    monkeypatch.setattr("mutate_command.find_failing_command", lambda cache, budget_seconds: None)
    return judged


def test_results_of_several_seeds_accumulate_in_one_file(
    quick_judge: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, words = tmp_path / "mutants.json", ["--cache", str(tmp_path / "cache"), "--resume"]
    assert main(["--count", "3", "--seed", "1", *words, str(file)]) == 0
    assert main(["--count", "3", "--seed", "1", *words, str(file)]) == 0
    assert len(quick_judge) == 3, "no mutant is judged twice"
    assert main(["--count", "2", "--seed", "2", *words, str(file), "--json", str(tmp_path / "night.json")]) == 0
    content = json.loads(file.read_text(encoding="utf-8"))
    assert len(content["mutants"]) == len(quick_judge) and {row["seed"] for row in content["mutants"]} == {1, 2}
    (result,) = content["results"]
    assert result["status"] == "pass" and 0 < result["measure"]["lower_bound"] < result["measure"]["killed_share"]
    assert file.read_text(encoding="utf-8") == (tmp_path / "night.json").read_text(encoding="utf-8")
    file.write_text("{}", encoding="utf-8")
    assert main(["--count", "1", *words, str(file)]) == 2
    assert "not a file of schema" in capsys.readouterr().err


def test_command_that_fails_on_the_unmodified_tree_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_command(command: str, tree: Path, cache: Path, *, seconds: float) -> CommandOutput:
        return CommandOutput(command, int(command == "selftest"), f"output of {command}")

    monkeypatch.setattr("mutate_command.run_command", run_command)
    monkeypatch.setattr("mutate_command.copy_tree", lambda target: target)
    assert "selftest" in COMMANDS
    assert main(["--count", "1", "--cache", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "output of selftest" in error and "`selftest` ends with 1 on the unmodified tree" in error
