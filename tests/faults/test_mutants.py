"""Mutants are drawn by seed from every package, change one place, and are judged by what commands end with."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from fault_plant import ROOT
from fault_walk import CommandOutput
from mutant import LINES, Mutant, draw_mutants, list_sources, mutate_file, mutate_lines, mutate_python
from mutate_command import MutantResult, judge_mutant, lower_bound, main, show_verdict

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


def test_crashes_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = Mutant("x", "README.md", "table: number", 1, "changed")
    outcomes = ["killed"] * 9 + ["survived", "crashed", "hung", "not built"]
    assert show_verdict([MutantResult(mutant, outcome, "", 0.0) for outcome in outcomes]) == 0
    assert show_verdict([MutantResult(mutant, outcome, "", 0.0) for outcome in outcomes[1:]]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "killed 90% of 10 that ran to their end, lower bound 60%"
    assert lines[1] == "PASS  13 mutants: 9 killed, 1 crashed, 1 hung, 1 survived, 1 not built"
    assert lower_bound(142, 150) == pytest.approx(0.898, abs=1e-3) and lower_bound(0, 0) == 0


def test_list_shows_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--count", "3", "--seed", "1"]) == 0
    assert capsys.readouterr().out.count("@@") == 6
