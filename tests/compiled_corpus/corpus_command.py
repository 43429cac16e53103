"""`python3 ci/run.py compiled`: kernels that other people's compilers made, and mutants of them, as one table.

Every kernel runs at level full on the shader engine and through the lint: it must be without a finding, and its
outputs must be those of NumPy. From each, things are taken out (mutants.py), and each mutant must be found, or
shown to do the same (equivalence.py).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "sim" / "shader"), str(HERE.parent)]

import variants as made  # noqa: E402
from verdicts import OUTCOMES, KernelVerdict, MutantVerdict, judge_kernel, judge_mutants  # noqa: E402

ENOUGH = 0.99  # of the mutants found, or shown equivalent


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/run.py compiled", description=__doc__.split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help="sources to look at (default: all)")
    parser.add_argument("--each", type=int, default=2, metavar="N", help="variants of every source (2)")
    parser.add_argument("--mutants", type=int, default=8, metavar="N", help="of each kind and kernel, at most (8)")
    parser.add_argument("--runs", type=int, default=2, metavar="N", help="mutants of a kernel that are run (2)")
    parser.add_argument("--json", metavar="FILE", help="every verdict")
    given = parser.parse_args()
    if not made.compilers():
        print("no compiler: neither clang-19 with ld.lld-19 nor the extra asm (ziglang) is installed")
        return 77
    chosen = [each for each in made.spread(given.each) if not given.names or each.name in given.names]
    start = time.monotonic()
    kernels, found = [], []
    for number, variant in enumerate(chosen):
        kernel = judge_kernel(variant)
        kernels.append(kernel)
        _tell_kernel(kernel)
        if kernel.clean and number % given.each == 0:
            found += list(judge_mutants(variant, given.mutants, runs=given.runs))
    for each in found:
        if each.outcome == "missed":
            print(f"missed  {each.variant.key} {each.mutant.kind}: {each.mutant.what}")
    _show(kernels, found)
    if given.json:
        Path(given.json).write_text(json.dumps(_details(kernels, found), indent=1))
    return _verdict(kernels, found, time.monotonic() - start)


def _tell_kernel(kernel: KernelVerdict) -> None:
    said = [*kernel.lint, *kernel.ran.findings, *kernel.ran.wrong, *filter(None, [kernel.ran.stopped])]
    for words in said[:3]:
        print(f"false   {kernel.variant.key}: {words}", flush=True)


def _show(kernels: list[KernelVerdict], found: list[MutantVerdict]) -> None:
    rows: dict[tuple[str, str, int], list[bool]] = {}
    for each in kernels:
        key = (each.variant.compiler.name, f"O{each.variant.level}", each.variant.wave)
        rows.setdefault(key, []).append(each.clean)
    table = [[*key, len(clean), len(clean) - sum(clean)] for key, clean in sorted(rows.items())]
    _table(("compiler", "level", "wave", "kernels", "not clean"), table)
    counts = Counter((each.mutant.kind, each.outcome) for each in found)
    kinds = sorted({kind for kind, _ in counts})
    lines = [[kind, *(counts[kind, outcome] for outcome in OUTCOMES)] for kind in kinds]
    _table(("mutant without", *OUTCOMES), lines)


def _table(head: tuple[str, ...], rows: list[list[Any]]) -> None:
    for row in [list(head), *rows]:
        print("  ".join(f"{cell!s:<{max(len(head[at]), 14 * (at == 0))}}" for at, cell in enumerate(row)).rstrip())
    print()


def _details(kernels: list[KernelVerdict], found: list[MutantVerdict]) -> dict[str, Any]:
    return {
        "kernels": [
            {"key": each.variant.key, "lint": each.lint, "findings": each.ran.findings, "wrong": each.ran.wrong}
            for each in kernels
        ],
        "mutants": [
            {"key": each.variant.key, "kind": each.mutant.kind, "what": each.mutant.what, "outcome": each.outcome,
             "words": each.words}
            for each in found
        ],
    }  # fmt: skip


def _verdict(kernels: list[KernelVerdict], found: list[MutantVerdict], seconds: float) -> int:
    unclean = sum(not each.clean for each in kernels)
    decided = sum(each.outcome != "missed" for each in found)
    passed = not unclean and decided >= ENOUGH * len(found)
    print(
        f"{'PASS' if passed else 'FAIL'}  {len(kernels)} kernels, {unclean} not clean; {decided} of {len(found)} "
        f"mutants found or equivalent; {seconds:.0f} s"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
