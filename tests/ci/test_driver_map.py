"""ci/driver_map.py: the map is complete, names tests that exist, and its page is current."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "ci"))
import driver_map
from driver_map import DriverMap, Suite, find_problems

from zinc_rt.host.errors import InputError


@pytest.fixture(scope="module")
def mapped() -> DriverMap:
    return driver_map.read_map()


def test_map_is_complete_and_its_page_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert driver_map.main(["--check"]) == 0, capsys.readouterr().err
    assert "kfdtest 172" in capsys.readouterr().out


def change_first(mapped: DriverMap, **changes: object) -> DriverMap:
    return replace(mapped, suites=(replace(mapped.suites[0], **changes), *mapped.suites[1:]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("P99", "no such test: P99"),
        ("scenario packet_flood", "no such test: scenario packet_flood"),  # it is packet_flood-pm4
        ("hip no_such_program", "no such test: hip no_such_program"),
        ("sim/test_events.py::test_of_nothing", "no such test: sim/test_events.py::test_of_nothing"),
        ("sim/test_nothing.py::test_of_nothing", "no such test: sim/test_nothing.py::test_of_nothing"),
    ],
)
def test_missing_test_is_reported(test: str, problem: str, mapped: DriverMap) -> None:
    suite = mapped.suites[0]
    case = next(iter(suite.covered))
    changed = change_first(mapped, covered={**suite.covered, case: [test]})
    assert find_problems(changed) == [f"kfdtest: {case}: {problem}"]


def test_missing_and_repeated_cases_are_reported(mapped: DriverMap) -> None:
    suite = mapped.suites[0]
    (case, _), *others = suite.covered.items()
    assert find_problems(change_first(mapped, covered=dict(others))) == [
        "kfdtest: 171 cases are mapped, the suite has 172"
    ]
    twice = change_first(mapped, gap={**suite.gap, "SVM": [*suite.gap["SVM"], case]})
    assert find_problems(twice) == [f"kfdtest: {case} is mapped twice"]
    unexplained = change_first(mapped, gap={**suite.gap, "a whim": [case]}, covered=dict(others))
    assert find_problems(unexplained) == ["kfdtest: no reason 'a whim'"]


def test_linux_rule_without_a_row_is_reported(mapped: DriverMap) -> None:
    rules = dict(mapped.linux.covered)
    del rules["userq_slots"]
    assert find_problems(replace(mapped, linux=replace(mapped.linux, covered=rules))) == [
        "Linux versions: 24 cases are mapped, the suite has 25",
        "Linux versions: userq_slots is not mapped",
    ]


@pytest.mark.parametrize(
    ("suite", "file", "text", "case"),
    [
        ("kfdtest", "KFDNewTest.cpp", "TEST_F(KFDNewTest , Basic) {", "KFDNewTest.Basic"),
        ("IGT", "amd_new.c", '\tigt_subtest_with_dynamic_f("new-%s", name) {', "amd_new@new-%s"),
        ("libamdf", "coverage.md", "| x | [a](pm4/new_test.cc), [b](../xdna/recipes/README.md) |", "pm4/new"),
    ],
)
def test_case_that_a_suite_adds_is_listed(
    suite: str, file: str, text: str, case: str, mapped: DriverMap, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text + "\n")
    path = tmp_path / file if suite == "libamdf" else tmp_path
    known: Suite = next(item for item in mapped.suites if item.name == suite)
    differences = driver_map.compare_sources(known, path)
    assert differences[0] == f"{suite}: not in the map: {case}"
    assert sum("not in the sources" in text for text in differences) >= known.count - 1
    assert driver_map.main(["--compare", f"{suite}={path}"]) == 1


def test_unusable_sources_are_an_error(mapped: DriverMap, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no case of kfdtest"):
        driver_map.compare_sources(mapped.suites[0], tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        driver_map.compare_sources(mapped.suites[0], tmp_path / "missing")
