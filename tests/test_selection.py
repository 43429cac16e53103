"""The selection of tests: the default set, `--rest`, and `--since`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from selection import affected_tests, import_graph, is_collected, kept_cases

IMPORTS = {
    "zinc_rt/ir/graph.py": set(),
    "zinc_rt/model/builder.py": {"zinc_rt/ir/graph.py"},
    "zinc_rt/pm4/packets.py": set(),
    "trace/command.py": {"zinc_rt/pm4/packets.py"},
    "tests/planted.py": {"zinc_rt/ir/graph.py"},
    "tests/test_layout.py": set(),
    "tests/ci/test_nightly.py": set(),
    "tests/ir/test_graph.py": {"zinc_rt/ir/graph.py"},
    "tests/model/test_builder.py": set(),
    "tests/pm4/test_packets.py": {"zinc_rt/pm4/packets.py"},
    "tests/serve/conftest.py": {"tests/planted.py"},
    "tests/serve/test_http.py": set(),
    "tests/trace/test_trace.py": set(),
}
GENERAL = ["tests/ci/test_nightly.py", "tests/test_layout.py"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(["tests/pm4/test_packets.py"], ["tests/pm4/test_packets.py"], id="a test file"),
        pytest.param(["tests/pm4/test_deleted.py"], [], id="a deleted test file"),
        pytest.param(["tests/planted.py"], ["tests/serve/test_http.py"], id="a helper, through a conftest"),
        pytest.param(
            ["zinc_rt/pm4/packets.py"],
            sorted([*GENERAL, "tests/pm4/test_packets.py", "tests/trace/test_trace.py"]),
            id="a package and the harness package above it",
        ),
        pytest.param(
            ["zinc_rt/ir/graph.py"],
            sorted(
                [*GENERAL, "tests/ir/test_graph.py", "tests/model/test_builder.py", "tests/serve/test_http.py"]
            ),
            id="a package at the bottom",
        ),
        pytest.param(
            ["zinc_rt/model/deleted.json"], sorted([*GENERAL, "tests/model/test_builder.py"]), id="package data"
        ),
        pytest.param(["pyproject.toml"], None, id="a file of no package"),
        pytest.param(["docs/extending.md", "zinc_rt/pm4/packets.py"], None, id="a page"),
        pytest.param(["tests/conftest.py"], None, id="the common conftest"),
        pytest.param(["tests/data.json"], None, id="test data"),
    ],
)
def test_change_selects_downstream_tests(changed: list[str], expected: list[str] | None) -> None:
    assert affected_tests(changed, IMPORTS) == expected


@pytest.mark.rest
def test_since_selects_less_than_everything_in_this_tree() -> None:
    imports = import_graph()
    everything = {path for path in imports if path.startswith("tests/") and "/test_" in path}
    top = affected_tests(["zinc_rt/serve/http/app.py"], imports)
    bottom = affected_tests(["zinc_rt/isa/__init__.py"], imports)
    assert top is not None and bottom is not None
    assert set(top) < set(bottom) <= everything
    assert not any(path.startswith(("tests/pm4/", "tests/sim/shader/")) for path in top)
    assert any(path.startswith("tests/serve/") for path in top)
    assert any(path.startswith("tests/sim/shader/") for path in bottom)


def test_kept_cases_cover_each_value_first() -> None:
    grid = [(a, b) for a in "abcd" for b in "xyz"]
    kept = kept_cases(grid, 4)
    assert len(kept) == 4
    assert {grid[index][0] for index in kept} == set("abcd")
    assert {grid[index][1] for index in kept} == set("xyz")
    assert kept_cases(grid, 4) == kept


def test_kept_cases_of_one_parameter_are_evenly_spaced() -> None:
    assert kept_cases([(str(index),) for index in range(9)], 3) == {0, 4, 8}
    assert kept_cases([("a",), ("b",)], 5) == {0, 1}


def test_file_is_skipped_only_if_its_source_has_no_chosen_test() -> None:
    whole = "import pytest\n\npytestmark = pytest.mark.rest\n"
    partly = "@pytest.mark.rest(keep=3)\ndef test_x(): ...\n"
    assert [is_collected(whole, item) for item in ("default", "rest", "all")] == [False, True, True]
    assert [is_collected(partly, item) for item in ("default", "rest", "all")] == [True, True, True]
    slow = whole.replace("rest", "slow")
    assert [is_collected(slow, "all", is_slow) for is_slow in (False, True)] == [False, True]
    assert [is_collected("", item) for item in ("default", "rest", "all")] == [True, False, True]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "default kept"),
        (["--rest"], "rest left"),
        (["test_some.py"], "default kept rest left"),
    ],
    ids=["no path", "rest", "path"],
)
@pytest.mark.slow(keep=1)
def test_workers_run_the_tests_chosen_by_the_controller(words: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n\n"
        "def test_default(): pass\n\n"
        "@pytest.mark.rest\n"
        "def test_rest(): pass\n\n"
        "@pytest.mark.rest(keep=1)\n"
        "@pytest.mark.parametrize('case', ['kept', 'left'])\n"
        "def test_some(case): pass\n"
    )
    (tmp_path / "test_other.py").write_text("def test_default(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-n", "2", "-rA", "-q", *words]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    names = re.findall(r"^PASSED test_some\.py::test_(\w+)(?:\[(\w+)\])?$", result.stdout, re.MULTILINE)
    assert {case or name for name, case in names} == set(expected.split())
    assert ("PASSED test_other.py::test_default" in result.stdout) == (words == [])
