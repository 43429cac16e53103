"""tinygrad as it is, where it and an LLVM that knows AMD GPUs are installed: tensors on the simulated device."""

from __future__ import annotations

import ctypes.util
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from zinc_rt.cli.sim import main
from zinc_rt.sim.serve import program

PROGRAM = """
import numpy as np
from tinygrad import Device, Tensor

assert Device.DEFAULT == "AMD", Device.DEFAULT
random = np.random.default_rng(7)
a, b = (random.standard_normal((24, 24), dtype=np.float32) for _ in range(2))
x, y = Tensor(a), Tensor(b)
np.testing.assert_array_equal((x + y).numpy(), a + b)
np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(x.sum(axis=0).numpy(), a.sum(axis=0), rtol=1e-4, atol=1e-5)
exp = np.exp(b - b.max(axis=1, keepdims=True))
np.testing.assert_allclose(y.softmax().numpy(), exp / exp.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)
print("tinygrad on", Device["AMD"].arch)
"""


@pytest.mark.skipif(find_spec("tinygrad") is None, reason="tinygrad is not installed")
@pytest.mark.skipif(
    not any(map(ctypes.util.find_library, ("LLVM", "LLVM-21", "LLVM-20", "LLVM-19"))), reason="no libLLVM"
)
@pytest.mark.skipif(program.find_compiler() is None, reason="no C compiler")
def test_tensors_match_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEV", "KFD+AMD:LLVM")
    monkeypatch.setenv("CACHEDB", str(tmp_path / "cache.db"))
    code = main(["--chip", "r9700", "--", sys.executable, "-c", PROGRAM])
    output = capfd.readouterr()
    assert (code, output.out) == (0, "tinygrad on gfx1201\n"), output.err
