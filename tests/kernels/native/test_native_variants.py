"""The kernels' tests once more: at other levels, without optimisation, and with operands between guarded pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kernels.native.harness import GUARD, LIBRARY
from kernels.native.libraries import UNDEFINED, faulty_library, library_bytes

from zinc_rt.kernels.native import build

FOLDER = Path(__file__).parent
NOT_AGAIN = {
    "variants",
    "memory",
    "builds",
    "source_rules",
    "dots",
    "functions",
}  # have libraries of their own
VARIANTS = {
    "before": ("native", (), "before"),
    "behind": ("native", (), "behind"),
    "v3": ("x86_64_v3", (), ""),
    "v2": ("x86_64_v2", (), ""),
    "undefined": ("native", UNDEFINED, ""),
}


def run_tests(files: list[Path], library: Path, side: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "-n",
        "0",
        "-q",
        "-x",
        "--no-header",
        *map(str, files),
    ]
    environment = {**os.environ, LIBRARY: str(library), GUARD: side}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=3600, cwd=FOLDER.parents[2]
    )


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_kernel_tests_pass_in_other_builds(tmp_path: Path, variant: str) -> None:
    level, flags, side = VARIANTS[variant]
    if level not in build.list_levels():
        pytest.skip("the levels of x86-64")
    library = tmp_path / "kernels.so"
    library.write_bytes(library_bytes(level, flags))
    tests = {file.stem.removeprefix("test_native_"): file for file in FOLDER.glob("test_*.py")}
    result = run_tests([tests[name] for name in sorted(tests.keys() - NOT_AGAIN)], library, side)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-2000:]
    assert "[100%]" in result.stdout


PLANTED = """
import numpy as np
from kernels.native.harness import check_op
from zinc_rt.ir.op import Op

def test_add():
    check_op(Op.ADD, np.ones((3, 37), np.float32), np.ones((3, 37), np.float32))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "side", "status"),
    [
        ("none", "behind", 0),
        ("wrong bits", "", 1),
        ("read behind", "", 0),
        ("read behind", "behind", -signal.SIGSEGV),
    ],
)
def test_fault_in_another_build_is_detected(tmp_path: Path, fault: str, side: str, status: int) -> None:
    test, library = tmp_path / "test_planted.py", tmp_path / "faulty.so"
    test.write_text(PLANTED, encoding="ascii")
    library.write_bytes(faulty_library(fault))
    tests = run_tests([test], library, side)
    assert tests.returncode == status, tests.stdout
