"""Whose fault a failing case of kernel-test is, where several kernels run in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zinc_rt.validate.kernel_test.verdicts import blame


def ran(*kernels: str, failed: bool = False, found: str = "") -> Any:
    return SimpleNamespace(outcome=SimpleNamespace(kernels=kernels, failed=failed, blamed=found))


def blamed(*cases: Any) -> set[str]:
    return set(blame(cases).values())


def test_a_kernel_that_is_not_in_every_failure_is_not_alone_at_fault() -> None:
    draws = [ran("grids", "sort", "draw", failed=True)] * 3 + [ran("sort", "draw", failed=True)]
    assert blamed(*draws, *[ran("sort", "draw")] * 4, ran("grids", "sort", "draw")) == {"draw"}


def test_of_two_that_fail_alike_the_last_wrote_what_is_wrong() -> None:
    topk = [ran("matvec", "topk", failed=True)] * 10 + [ran("matvec", "topk")] * 12 + [ran("topk")]
    assert blamed(*topk) == {"topk"}


def test_a_helper_of_everybody_is_not_accused_for_its_callers() -> None:
    passing = [ran("norm", "add")] * 20
    assert blamed(
        *[ran("norm", "matvec", failed=True)] * 5, *[ran("norm", "rope", failed=True)] * 5, *passing
    ) == {
        "matvec",
        "rope",
    }


def test_a_broken_helper_does_not_accuse_those_it_works_for() -> None:
    broken = [ran("norm", "matvec", failed=True)] * 3 + [ran("norm", "rope", failed=True)] * 3
    assert blamed(*broken, *[ran("matvec")] * 6, *[ran("rope")] * 6) == {"norm"}


def test_what_a_finding_names_is_taken_at_its_word() -> None:
    assert blamed(ran("norm", "matvec", failed=True, found="norm")) == {"norm"}
