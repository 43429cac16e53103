"""Kernels of other people's compilers are clean and right, and what is taken out of them is found."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sim" / "shader"))

from kernel_run import lint_kernel, load_binary
from mutants import Mutant, list_mutants
from variants import Variant, compile_variant, find_compilers, list_variants, spread_variants
from verdicts import CASES, decide_statically, judge_kernel

pytestmark = pytest.mark.skipif(
    not find_compilers(), reason="neither clang-19 with ld.lld-19 nor ziglang is installed"
)
QUICK = ("mad_wide", "lanes_exchange")  # that run; all others with --slow
QUICK_LINT = ("atomics_scopes", "bins", "helpers", "medians", "publish", "group_scan", "radix_split", "last_group")


def choose_kernels(names: tuple[str, ...], count: int) -> list[Variant]:
    return (
        [variant for variant in spread_variants(1) if variant.name in names] if count < 100 else spread_variants(2)
    )


def test_every_source_has_a_case() -> None:
    assert {variant.name for variant in spread_variants(1)} <= set(CASES)
    assert len(spread_variants(2)) >= 100


def test_compiled_kernels_are_correct_and_have_no_findings(slow_counts) -> None:
    for variant in choose_kernels(QUICK, slow_counts(2, 100)):
        verdict = judge_kernel(variant)
        assert verdict.is_clean, f"{variant.key}: {verdict.lint} {verdict.ran}"


def test_unoptimised_code_may_reload_registers_that_were_never_stored() -> None:
    for variant in list_variants((0,)):
        if variant.name == "horner64" and variant.wave == 32:
            verdict = judge_kernel(variant)
            assert verdict.is_clean, f"{variant.key}: {verdict.lint} {verdict.ran}"


@pytest.mark.rest
def test_lint_reports_nothing_for_compiler_output(slow_counts) -> None:
    for variant in choose_kernels(QUICK_LINT, slow_counts(8, 100)):
        texts = [
            f"{variant.key} {name}: {result.sentence()}"
            for name, result in lint_kernel(load_binary(compile_variant(variant)))
        ]
        assert texts == []


@pytest.mark.rest
def test_removed_wait_is_detected_or_has_no_effect(slow_counts) -> None:
    outcomes: Counter[str] = Counter()
    for variant in choose_kernels(("bins", "group_scan"), slow_counts(2, 100)):
        one = load_binary(compile_variant(variant))
        for mutant in (mutant for mutant in list_mutants(one) if mutant.kind == "wait"):
            verdict = decide_statically(one, variant, mutant)
            outcomes[verdict.outcome if verdict else "missed"] += 1
    assert outcomes["lint"] > 10
    assert outcomes["missed"] <= 0.01 * outcomes.total(), outcomes


def select_mutants(mutants: list[Mutant], text: str) -> list[Mutant]:
    return [mutant for mutant in mutants if text in mutant.what]


def test_barrier_without_wait_for_its_store_is_detected() -> None:
    (variant,) = [variant for variant in spread_variants(1) if variant.name == "bitonic_sort"]
    one = load_binary(compile_variant(variant))
    waits = select_mutants([mutant for mutant in list_mutants(one) if mutant.kind == "wait"], "dscnt")
    assert waits
    assert any(finding.rule == "barrier-wait" for item in waits for _, finding in lint_kernel(one, item.changed))
