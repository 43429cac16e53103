"""Bugs of public projects, re-made as small kernels with a link: each is found at the line marked BUG."""

from __future__ import annotations

import contextlib
import inspect
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.launching.launch import LaunchStopped
from zinc_rt.launching.source import find_toolchains
from zinc_rt.launching.values import inout, out

BUGS = Path(__file__).with_name("public_bugs")
TRITON = {
    "view_shorter_than_length": ("one_length_for_two", "out-of-bounds"),
    "offset_wraps": ("copy_rows", "page-fault"),
    "load_without_barrier": ("reverse_through_memory", "race"),
    "page_of_masked_lanes": ("gather_pages", "out-of-bounds"),
    "block_outside_of_window": ("window", "out-of-bounds"),
}
CHIPS = {"rotations.cl": "gfx1100", "store_barrier_load_gfx1151.s": "gfx1151"}  # others: gfx1201
BLOCKS = {"rotations.cl": 1024}
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "prologue.hip": ("lds-race", {"out": out(64, np.float32), "x": np.ones(128, np.float32)}),
    "next_iteration.cl": ("lds-race", {"out": out(64, np.float32), "x": np.ones(256, np.float32)}),
    "load_in_asm.hip": ("wait", {"out": out(64, np.float32), "x": np.ones(64, np.float32)}),
    "store_barrier_load.s": ("barrier-wait", {"out": out(64, np.int32), "x": inout(np.zeros(64, np.int32))}),
    "rotations.cl": ("lds-race", {"out": out(1024, np.float32), "x": np.ones(96, np.float32)}),
    "store_barrier_load_gfx1151.s": (
        "barrier-wait",
        {"out": out(64, np.int32), "x": inout(np.zeros(64, np.int32))},
    ),
    "lds_drain.s": ("barrier-wait", {"out": out(64, np.int32), "x": np.zeros(64, np.int32)}),
}


def marked_line(text: str, first: int = 1) -> int:
    """Return the number of the line that is marked, if the text begins at line `first`."""
    [line] = [number for number, line in enumerate(text.splitlines(), first) if line.endswith(" BUG")]
    return line


@pytest.mark.rest
@pytest.mark.parametrize("name", list(TRITON))
def test_triton_bug_is_found_at_its_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("triton") is None:
        pytest.skip("the package triton is not installed")
    from zinc_rt.launching import triton

    chip = triton.install()
    monkeypatch.syspath_prepend(BUGS)
    try:
        import triton_bugs  # type: ignore[import-not-found]

        kernel, rule = TRITON[name]
        with contextlib.suppress(LaunchStopped):
            getattr(triton_bugs, name)()
        lines, first = inspect.getsourcelines(getattr(triton_bugs, kernel).fn)
        expected = (rule, "triton_bugs.py", marked_line("".join(lines), first))
        places = [finding.line.rpartition(":") for finding in chip.findings]
        rules = [finding.rule for finding in chip.findings]
        result = [(rule, Path(path).name, int(line)) for rule, (path, _, line) in zip(rules, places, strict=True)]
        assert expected in result, chip.findings
        assert {line for _, _, line in result} <= set(range(first, first + len(lines))), "in the kernel"
    finally:
        chip.uninstall()
        sys.modules.pop("triton_bugs", None)


@pytest.mark.rest
@pytest.mark.parametrize("name", list(SOURCES))
def test_bug_in_a_source_is_found_at_its_line(name: str) -> None:
    if not list(find_toolchains()):
        pytest.skip("no clang for gfx1201 in PATH, and the package ziglang is not installed")
    if find_spec("elftools") is None:
        pytest.skip("the package pyelftools is not installed")
    rule, args = SOURCES[name]
    arch, block = CHIPS.get(name, DEFAULT_ARCH), BLOCKS.get(name, 64)
    result = zinc_rt.launch(BUGS / name, grid=1, block=block, args=args, device="sim", arch=arch)
    assert result.device["arch"] == arch
    places = {(finding.rule, finding.line.rpartition(":")[2]) for finding in result.findings}
    assert (rule, str(marked_line((BUGS / name).read_text()))) in places, result.findings


def test_each_bug_has_a_link_and_a_marked_line() -> None:
    text = (BUGS / "triton_bugs.py").read_text()
    assert text.count("# https://github.com/") == len(TRITON) == text.count("# BUG\n")
    for name in SOURCES:
        assert (BUGS / name).read_text().startswith("// https://github.com/")
    assert len(TRITON) + len(SOURCES) >= 8
