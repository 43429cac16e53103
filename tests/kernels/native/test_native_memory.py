"""Kernels touch nothing but their operands, and compute nothing that C leaves undefined."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from kernels.native.libraries import UNDEFINED, faulty_library, library_bytes, run_guarded

pytestmark = pytest.mark.rest

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded by mprotect")


@POSIX
@pytest.mark.parametrize("side", ["before", "behind"])
def test_no_kernel_touches_a_byte_outside_its_operands(tmp_path: Path, side: str) -> None:
    assert run_guarded(library_bytes("native"), tmp_path, side)[0] == 0


@POSIX
@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("side", ["before", "behind"])
def test_access_one_byte_out_of_bounds_is_detected(tmp_path: Path, access: str, side: str) -> None:
    status, line = run_guarded(faulty_library(f"{access} {side}"), tmp_path, side)
    assert status in (-signal.SIGSEGV, -signal.SIGBUS)
    assert line == "running ADD in canonical-1"


def test_kernels_have_no_undefined_behaviour(tmp_path: Path) -> None:
    assert run_guarded(library_bytes("native", UNDEFINED), tmp_path, "none")[0] == 0


def test_undefined_shift_is_detected(tmp_path: Path) -> None:
    status, line = run_guarded(faulty_library("undefined shift", *UNDEFINED), tmp_path, "none")
    assert status in (-signal.SIGILL, -signal.SIGTRAP)
    assert line == "running ADD in canonical-1"
