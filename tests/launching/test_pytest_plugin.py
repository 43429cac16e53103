"""The pytest plugin: the fixture `gpu`, suppressions, JUnit, xdist, `gpu.against`, the workflow of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml
from code_objects import code_object

import zinc_rt
from zinc_rt.launching.against import AgainstCase, make_cases, place_array, with_special_values
from zinc_rt.launching.source import find_toolchains

ROOT = Path(__file__).resolve().parents[2]
KERNELS = Path(__file__).with_name("triton_kernels.py")
BEGIN = """
import numpy as np
from zinc_rt.launching.values import inout
CODE = open("code.co", "rb").read()
def saxpy(gpu, n, grid=1, **more):
    x, y = np.ones(n, np.float32), np.ones(n, np.float32)
    args = {"y": inout(y), "x": x, "a": np.float32(3), "n": np.int32(more.get("limit", n))}
    return gpu.launch(CODE, "saxpy", grid=grid, block=32, args=args)
"""
TESTS = """
def test_clean(gpu):
    assert (saxpy(gpu, 20).outputs["y"] == 4).all()
    gpu.assert_clean()

def test_beyond(gpu):
    saxpy(gpu, 20, limit=32)

def test_taken(gpu):
    saxpy(gpu, 20, limit=32)
    assert {each.rule for each in gpu.take_findings()} == {"out-of-bounds"}

def test_nothing(gpu):
    gpu.assert_clean()

def test_without():
    pass
"""


def run(folder: Path, *words: str, tests: str = TESTS) -> tuple[int, str]:
    """Run pytest on these tests in a separate process. Return the exit code and the output."""
    (folder / "code.co").write_bytes(code_object("gfx1201_32"))
    (folder / "test_kernels.py").write_text(BEGIN + tests)
    root = str(Path(zinc_rt.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((root, str(KERNELS.parent)))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def test_findings_fail_a_test_and_are_in_the_junit_report(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--junit-xml=report.xml")
    assert code == 1 and "3 passed" in output and "2 failed" in output, output
    assert "out-of-bounds: load of" in output and "nothing was checked" in output
    rows = {item.get("name"): item for item in ElementTree.parse(tmp_path / "report.xml").iter("testcase")}
    findings = [item.get("value", "") for item in rows["test_beyond"].iter("property")]
    assert findings and all("out-of-bounds" in finding for finding in findings)
    assert not list(rows["test_clean"].iter("property"))


@pytest.mark.rest
def test_suppressions_in_pyproject_and_workers(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.zinc-rt.suppressions]]\nrule = "out-of-bounds"\nkernel = "saxpy"\nreason = "a test"\n'
    )
    code, output = run(tmp_path, "-n", "2", "-k", "beyond or clean", "--gpu-tool", "memcheck,racecheck")
    assert code == 0 and "2 passed" in output, output
    (tmp_path / "pyproject.toml").write_text('[[tool.zinc-rt.suppressions]]\nrule = "out-of-bounds"\n')
    code, output = run(tmp_path, "-k", "clean")
    assert code != 0 and "pyproject.toml: entry 1: expected rule and reason" in output
    (tmp_path / "pyproject.toml").unlink()
    code, output = run(tmp_path, "-k", "clean", "--gpu-tool", "memchek")
    assert code != 0 and "tool memchek" in output


AGAINST = """
import pytest
from zinc_rt.launching.values import inout

def against(gpu, **more):
    @gpu.against(lambda x: 3 * x + x, inputs=(np.float32,), ulps=1, **more)
    def check(out, x):
        args = {"y": inout(x), "x": x, "a": np.float32(3), "n": np.int32(count(x.size))}
        out[:] = gpu.launch(CODE, "saxpy", grid=-(-x.size // 32), block=32, args=args).outputs["y"]

def test_right(gpu):
    against(gpu, sizes=(1, 33, 100), chips=(gpu.chip,))

def test_wrong(gpu):
    against(gpu, sizes=(32, 100), chips=(gpu.chip,))
"""


@pytest.mark.rest
def test_against_passes_and_reduces_a_failure(tmp_path: Path) -> None:
    exact = "def count(n): return n\n"
    code, output = run(tmp_path, "-k", "right", tests=exact + AGAINST)
    assert code == 0, output
    code, output = run(tmp_path, "-k", "wrong", tests="def count(n): return n // 8 * 8\n" + AGAINST)
    assert code == 1 and "size 1 on gfx1201 (reduced from size 100): 1 of 1 elements differ" in output, output


LAST_LANE = """
from zinc_rt.launching.values import out
SOURCE = "kernel void last_lane(global uint *out) { out[0] = get_local_id(0); }"

def test_order(gpu):
    @gpu.against(lambda x: np.array([31], np.uint32), sizes=(1,), inputs=(np.uint32,), chips=(gpu.chip,))
    def check(output, x):
        open("k.cl", "w").write(SOURCE)
        output[:] = gpu.launch("k.cl", grid=1, block=32, args={"out": out(1, np.uint32)}).outputs["out"]
        gpu.take_findings()
"""


@pytest.mark.rest
def test_against_finds_a_result_that_depends_on_the_order_of_lanes(tmp_path: Path) -> None:
    if not list(find_toolchains()):
        pytest.skip("no clang for gfx1201 in PATH, and the package ziglang is not installed")
    code, output = run(tmp_path, tests=LAST_LANE)
    assert code == 1 and "size 1 on gfx1201, highest lanes first: 1 of 1 elements differ; out[0] is 0" in output


def test_cases_of_against_cover_sizes_variations_and_chips() -> None:
    rows = make_cases((1, 1000, 31), ("gfx1201", "gfx1200"))
    assert [row.size for row in rows[:3]] == [1, 1000, 31]
    assert len(rows) == 3 + 2 * 5 + 1 and len(set(rows)) == len(rows)
    assert rows[-1] == AgainstCase(1000, "gfx1200")
    values = with_special_values(np.ones(100, np.float16), 7)
    assert np.isnan(values).any() and np.isinf(values).any() and (np.abs(values) < 1e-6).any()
    array = np.arange(9, dtype=np.float32)
    unaligned = place_array(array, AgainstCase(9, "gfx1201", unaligned=True)).array
    assert unaligned.__array_interface__["data"][0] % 16 == 4 and np.array_equal(unaligned, array)
    padded = place_array(array, AgainstCase(9, "gfx1201", padded=True))
    assert padded.read_padding().size >= 512 and (padded.read_padding() == 0xFF).all()


@pytest.mark.rest
def test_workflow_of_the_page_runs(tmp_path: Path) -> None:
    """Its commands other than pip's, with the first test of the page in the folder that it names."""
    for package in ("triton", "xdist"):
        if find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    page = (ROOT / "docs" / "triton.md").read_text(encoding="utf-8")
    workflow = re.search(r"```yaml\n(on: .*?)```", page, re.DOTALL)
    test = re.search(r"```python\n(import numpy as np\nfrom mine .*?)```", page, re.DOTALL)
    assert workflow is not None and test is not None
    assert len(workflow[1].splitlines()) == 10
    steps = yaml.safe_load(workflow[1])["jobs"]["kernels"]["steps"]
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_add.py").write_text(test[1])
    (folder / "mine.py").write_text(KERNELS.read_text())
    root = str(Path(zinc_rt.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    commands = [item["run"] for item in steps if "run" in item]
    assert [command.split()[0] for command in commands] == ["pip", "pytest"]
    words = [sys.executable, "-m", *shlex.split(commands[1].replace("auto", "1"))]
    result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "kernels.xml").exists()
