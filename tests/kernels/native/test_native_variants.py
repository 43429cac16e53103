"""The kernels' tests once more: at other levels, without optimisation, and with operands between guarded pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernels.native.harness import GUARD, LIBRARY
from kernels.native.libraries import UNDEFINED, library_bytes

from zinc_rt.kernels.native import build

FOLDER = Path(__file__).parent
NOT_AGAIN = ("variants", "memory", "builds", "source_rules")  # these make libraries of their own
VARIANTS = {
    "before": ("native", (), "before"),
    "behind": ("native", (), "behind"),
    "v3": ("x86_64_v3", (), ""),
    "v2": ("x86_64_v2", (), ""),
    "undefined": ("native", UNDEFINED, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_test_of_a_kernel_passes_in_other_builds(tmp_path: Path, variant: str) -> None:
    level, flags, side = VARIANTS[variant]
    if level not in build.levels():
        pytest.skip("the levels of x86-64")
    path = tmp_path / "kernels.so"
    path.write_bytes(library_bytes(level, flags))
    files = [
        str(file) for file in FOLDER.glob("test_*.py") if file.stem.removeprefix("test_native_") not in NOT_AGAIN
    ]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "--no-header", *files]
    environment = {**os.environ, LIBRARY: str(path), GUARD: side}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=3600, cwd=FOLDER.parents[2]
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
