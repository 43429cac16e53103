"""What becomes of each kernel and each mutant: the lint first, then a proof, then a run at level full."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from compiled_cases import CASES as C_CASES
from compiled_job import Job
from equivalence import is_equivalent
from kernel_run import Binary, KernelRun, lint_kernel, load_binary, run_kernel
from mutants import Mutant, list_mutants
from opencl_cases import CASES as OPENCL_CASES
from unchanged import is_output_unchanged
from variants import Variant, compile_variant

CASES = {**C_CASES, **OPENCL_CASES}
OUTCOMES = ("lint", "finding", "output", "stopped", "equivalent", "missed")


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """The verdict on an unmodified kernel: unexpected findings and wrong outputs."""

    variant: Variant
    lint: tuple[str, ...]
    ran: KernelRun

    @property
    def is_clean(self) -> bool:
        return not (self.lint or self.ran.findings or self.ran.wrong or self.ran.stopped)


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    """How a mutant was detected (OUTCOMES), and the text of the finding or the proof."""

    variant: Variant
    mutant: Mutant
    outcome: str
    words: str


def load_job(name: str) -> Job:
    with np.errstate(all="ignore"):
        return CASES[name](np.random.default_rng(sum(name.encode())))


def judge_kernel(variant: Variant) -> KernelVerdict:
    one = load_binary(compile_variant(variant))
    texts = tuple(f"{name} {finding.rule}: {finding.sentence()}" for name, finding in lint_kernel(one))
    return KernelVerdict(variant, texts, run_kernel(one, load_job(variant.name)))


def judge_mutants(variant: Variant, per_kernel: int, *, runs: int) -> Iterator[MutantVerdict]:
    """Judge at most `per_kernel` mutants of every kind, spread over the code; run those that neither lint nor
    proof decides, at most `runs` of them.
    """
    one = load_binary(compile_variant(variant))
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in list_mutants(one):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    for of_kind in by_kind.values():
        for mutant in of_kind[:: -(-len(of_kind) // per_kernel)]:
            verdict = decide_statically(one, variant, mutant)
            if verdict is None and runs:
                runs -= 1
                verdict = decide_by_running(one, variant, mutant)
            if verdict is not None:
                yield verdict


def decide_statically(binary: Binary, variant: Variant, mutant: Mutant) -> MutantVerdict | None:
    """Return the verdict of lint or proof; None if only a run can decide."""
    output = lint_kernel(binary, mutant.changed) if mutant.changed else []
    if output:
        return MutantVerdict(variant, mutant, "lint", output[0][1].sentence())
    threads = load_job(variant.name).threads
    count = math.prod(threads) if isinstance(threads, tuple) else threads
    proof = is_equivalent(binary, mutant, count)
    return MutantVerdict(variant, mutant, "equivalent", proof) if proof else None


def decide_by_running(binary: Binary, variant: Variant, mutant: Mutant) -> MutantVerdict:
    ran = run_kernel(binary, load_job(variant.name), change=mutant.changed, lds_bytes=mutant.lds_bytes)
    for outcome, words in (
        ("finding", ran.findings),
        ("stopped", [ran.stopped] if ran.stopped else []),
        ("output", ran.wrong),
    ):
        if words:
            return MutantVerdict(variant, mutant, outcome, words[0])
    proof = is_output_unchanged(binary, load_job(variant.name), mutant)
    return MutantVerdict(variant, mutant, "equivalent" if proof else "missed", proof)
