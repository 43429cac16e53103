"""Kernels of other people's compilers are clean and right, and what is taken out of them is found."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sim" / "shader"))

from kernel_run import binary, linted
from mutants import Mutant, mutants
from variants import Variant, code_object, compilers, spread
from verdicts import CASES, decided_without_running, judge_kernel

pytestmark = pytest.mark.skipif(not compilers(), reason="neither clang-19 with ld.lld-19 nor ziglang is installed")
QUICK = ("mad_wide", "lanes_exchange")  # that run; all others with --slow
QUICK_LINT = ("atomics_scopes", "bins", "helpers", "medians", "publish", "group_scan", "radix_split", "last_group")


def chosen(names: tuple[str, ...], count: int) -> list[Variant]:
    return [variant for variant in spread(1) if variant.name in names] if count < 100 else spread(2)


def test_every_source_has_a_case() -> None:
    assert {variant.name for variant in spread(1)} <= set(CASES)
    assert len(spread(2)) >= 100


def test_compiled_kernels_are_correct_and_have_no_findings(slow_counts) -> None:
    for variant in chosen(QUICK, slow_counts(2, 100)):
        verdict = judge_kernel(variant)
        assert verdict.clean, f"{variant.key}: {verdict.lint} {verdict.ran}"


@pytest.mark.rest
def test_lint_is_silent_on_compiler_output(slow_counts) -> None:
    for variant in chosen(QUICK_LINT, slow_counts(8, 100)):
        texts = [
            f"{variant.key} {name}: {result.sentence()}" for name, result in linted(binary(code_object(variant)))
        ]
        assert texts == []


@pytest.mark.rest
def test_removed_wait_is_detected_or_has_no_effect(slow_counts) -> None:
    outcomes: Counter[str] = Counter()
    for variant in chosen(("bins", "group_scan"), slow_counts(2, 100)):
        one = binary(code_object(variant))
        for mutant in (mutant for mutant in mutants(one) if mutant.kind == "wait"):
            verdict = decided_without_running(one, variant, mutant)
            outcomes[verdict.outcome if verdict else "missed"] += 1
    assert outcomes["lint"] > 10
    assert outcomes["missed"] <= 0.01 * outcomes.total(), outcomes


def _only(mutants: list[Mutant], text: str) -> list[Mutant]:
    return [mutant for mutant in mutants if text in mutant.what]


def test_barrier_without_wait_for_its_store_is_detected() -> None:
    (variant,) = [variant for variant in spread(1) if variant.name == "bitonic_sort"]
    one = binary(code_object(variant))
    waits = _only([mutant for mutant in mutants(one) if mutant.kind == "wait"], "dscnt")
    assert waits
    assert any(finding.rule == "barrier-wait" for item in waits for _, finding in linted(one, item.changed))
