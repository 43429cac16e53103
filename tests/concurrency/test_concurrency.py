"""Concurrent workloads are right and have no findings, and injected faults are found with the right class.

The others run with `ci/run.py consan`.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from workloads import FOLDER, WORKLOADS, Workload, judge

from zinc_rt.launching.source import find_toolchains

needs_compiler = pytest.mark.skipif(
    next(find_toolchains(), None) is None or find_spec("elftools") is None,
    reason="no clang for gfx1201 in PATH and no ziglang, or pyelftools is not installed",
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
QUICK = ("copy_wait", "two_readers_two_counters")  # all faults; of all others the correct program only, in rest


def test_each_workload_has_eight_faults_and_a_source() -> None:
    assert len(WORKLOADS) == 20
    assert {path.stem for path in FOLDER.glob("*.cl")} == set(BY_NAME)
    for workload in WORKLOADS:
        assert [fault.number for fault in workload.faults] == list(range(1, 9)), workload.name


@needs_compiler
@pytest.mark.parametrize("name", QUICK)
def test_correct_workload_has_no_finding(name: str) -> None:
    verdict = judge(BY_NAME[name])
    assert verdict.is_right, verdict


@needs_compiler
@pytest.mark.parametrize(
    ("name", "fault"), [("copy_wait", 2), ("store_from_shared", 2), ("roles_of_different_sizes", 3)]
)
def test_fault_is_found_with_its_class(name: str, fault: int) -> None:
    verdict = judge(BY_NAME[name], fault)
    assert verdict.is_right, verdict


@needs_compiler
@pytest.mark.rest
@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("workload", [item for item in WORKLOADS if item.name not in QUICK])
def test_every_correct_workload_has_no_finding(workload: Workload) -> None:
    verdict = judge(workload)
    assert verdict.is_right, verdict
