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
    parser.add_argument("names", nargs="*", metavar="NAME", help="sources to compile (default: all)")
    parser.add_argument(
        "--each", type=int, default=2, metavar="N", help="number of variants of every source (default 2)"
    )
    parser.add_argument(
        "--levels", type=int, nargs="+", default=made.LEVELS, metavar="N", help="levels of -O (default 1 2 3)"
    )
    parser.add_argument(
        "--mutants",
        type=int,
        default=8,
        metavar="N",
        help="maximum number of mutants of each kind and kernel (default 8)",
    )
    parser.add_argument(
        "--runs", type=int, default=2, metavar="N", help="number of mutants per kernel to run (default 2)"
    )
    parser.add_argument(
        "--arch",
        default=made.DEFAULT_ARCH,
        metavar="CHIP",
        help=f"chip to compile for (default {made.DEFAULT_ARCH})",
    )
    parser.add_argument("--json", metavar="FILE", help="every verdict")
    args = parser.parse_args()
    if not made.find_compilers():
        print("no compiler: neither clang-19 with ld.lld-19 nor the extra asm (ziglang) is installed")
        return 77
    variants = made.spread_variants(args.each, args.levels, args.arch)
    chosen = [variant for variant in variants if not args.names or variant.name in args.names]
    start = time.monotonic()
    kernels, result = [], []
    for number, variant in enumerate(chosen):
        kernel = judge_kernel(variant)
        kernels.append(kernel)
        print_kernel(kernel)
        if kernel.is_clean and number % args.each == 0 and args.mutants:
            result += list(judge_mutants(variant, args.mutants, runs=args.runs))
    for item in result:
        if item.outcome == "missed":
            print(f"missed  {item.variant.key} {item.mutant.kind}: {item.mutant.what}")
    print_results(kernels, result)
    if args.json:
        Path(args.json).write_text(json.dumps(result_details(kernels, result), indent=1))
    return overall_verdict(kernels, result, time.monotonic() - start)


def print_kernel(kernel: KernelVerdict) -> None:
    output = [*kernel.lint, *kernel.ran.findings, *kernel.ran.wrong, *filter(None, [kernel.ran.stopped])]
    for words in output[:3]:
        print(f"false   {kernel.variant.key}: {words}", flush=True)


def print_results(kernels: list[KernelVerdict], verdicts: list[MutantVerdict]) -> None:
    rows: dict[tuple[str, str, int], list[bool]] = {}
    for kernel in kernels:
        key = (kernel.variant.compiler.name, f"O{kernel.variant.level}", kernel.variant.wave)
        rows.setdefault(key, []).append(kernel.is_clean)
    table = [[*key, len(clean), len(clean) - sum(clean)] for key, clean in sorted(rows.items())]
    print_table(("compiler", "level", "wave", "kernels", "not clean"), table)
    counts = Counter((verdict.mutant.kind, verdict.outcome) for verdict in verdicts)
    kinds = sorted({kind for kind, _ in counts})
    lines = [[kind, *(counts[kind, outcome] for outcome in OUTCOMES)] for kind in kinds]
    print_table(("mutant without", *OUTCOMES), lines)


def print_table(headings: tuple[str, ...], rows: list[list[Any]]) -> None:
    for row in [list(headings), *rows]:
        print(
            "  ".join(
                f"{cell!s:<{max(len(headings[index]), 14 * (index == 0))}}" for index, cell in enumerate(row)
            ).rstrip()
        )
    print()


def find_clang_version(compiler: made.Compiler) -> str:
    return made.compiler_version(compiler).split(" (")[0].removeprefix("clang version ").splitlines()[0]


def result_details(kernels: list[KernelVerdict], verdicts: list[MutantVerdict]) -> dict[str, Any]:
    return {
        "kernels": [
            {"key": kernel.variant.key, "source": kernel.variant.name, "compiler": kernel.variant.compiler.name,
             "clang": find_clang_version(kernel.variant.compiler), "lint": kernel.lint,
             "findings": kernel.ran.findings, "wrong": kernel.ran.wrong, "stopped": kernel.ran.stopped}
            for kernel in kernels
        ],
        "mutants": [
            {"key": verdict.variant.key, "kind": verdict.mutant.kind, "what": verdict.mutant.what,
             "outcome": verdict.outcome,
             "words": verdict.words}
            for verdict in verdicts
        ],
    }  # fmt: skip


def overall_verdict(kernels: list[KernelVerdict], verdicts: list[MutantVerdict], seconds: float) -> int:
    unclean = sum(not kernel.is_clean for kernel in kernels)
    detected = sum(verdict.outcome != "missed" for verdict in verdicts)
    passed = not unclean and detected >= ENOUGH * len(verdicts)
    print(
        f"{'PASS' if passed else 'FAIL'}  {len(kernels)} kernels, {unclean} not clean; {detected} of "
        f"{len(verdicts)} mutants found or equivalent; {seconds:.0f} s"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
