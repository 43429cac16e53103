"""One source for every machine: it compiles for all, and gives the same bits at each level that runs here.

That it compiles for arm is seen in test_native_source_rules.py, too, in every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels.native.libraries import find_compiler, library_bytes, run_guarded

from zinc_rt.kernels.native import build

TARGETS = {
    "x86_64-linux": ("x86_64_v2", "x86_64_v3", "x86_64_v4"),
    "aarch64-linux": ("generic", "neoverse_v1"),
    "aarch64-macos": ("apple_m1",),
}


def cross_compile(target: str, level: str) -> bytes:
    if "zig" not in find_compiler().version:
        pytest.skip("only zig compiles for other systems")
    return library_bytes(level, ("-target", target))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "level"), [(target, level) for target, levels in TARGETS.items() for level in levels]
)
def test_kernels_compile_for_every_target(target: str, level: str) -> None:
    magic = b"\xcf\xfa\xed\xfe" if "macos" in target else b"\x7fELF"
    assert cross_compile(target, level)[:4] == magic


@pytest.mark.parametrize(
    "level", [pytest.param(level, marks=pytest.mark.slow) for level in ("x86_64_v3", "x86_64_v2")]
)
def test_every_level_matches_the_oracle_bits(tmp_path: Path, level: str) -> None:
    if level not in build.list_levels():
        pytest.skip("the levels of x86-64")
    status, line = run_guarded(library_bytes(level), tmp_path, "none")
    assert status == 0, line
