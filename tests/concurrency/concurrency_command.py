"""`python3 ci/run.py consan`: workloads after those of Triton's ConSan, with injected faults, as one table.

Each workload must be right and without a finding; each fault must have a finding of its class. The seconds are
those of the launch with all checks, without the compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from workloads import WORKLOADS, Verdict, judge

from zinc_rt.host.terminal import Table, show
from zinc_rt.launching.source import find_toolchains


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="ci/run.py consan",
        description=(__doc__ or "").split("\n\n")[1],
        epilog="example: python3 ci/run.py consan copy_wait --json consan.json",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads (default: all)")
    parser.add_argument("--json", metavar="F", type=Path, help="write every verdict")
    arguments = parser.parse_args()
    known = [workload.name for workload in WORKLOADS]
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no workload {min(unknown)}; there are {', '.join(known)}")
    if next(find_toolchains(), None) is None:
        print("no clang for gfx1201 in PATH, and the package ziglang is not installed: pip install 'zinc-rt[asm]'")
        return 77
    verdicts: list[Verdict] = []
    rows = []
    for workload in WORKLOADS:
        if arguments.names and workload.name not in arguments.names:
            continue
        correct = judge(workload)
        faulty = [judge(workload, fault.number) for fault in workload.faults]
        verdicts += [correct, *faulty]
        for verdict in (correct, *faulty):
            if not verdict.is_right:
                print(describe(verdict), file=sys.stderr, flush=True)
        seconds = [verdict.seconds for verdict in (correct, *faulty)]
        named = sum(verdict.is_right for verdict in faulty)
        state = "clean" if correct.is_right else "not clean"
        median, worst = f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"
        rows.append((workload.name, state, f"{named}/{len(faulty)}", median, worst))
    show(Table(("workload", "correct", "found", "median s", "worst s"), rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    return print_result(verdicts)


def describe(verdict: Verdict) -> str:
    """Return a line about a verdict that is not as it must be."""
    reported = ", ".join(verdict.rules) or "no finding"
    if verdict.fault == 0:
        results = "" if verdict.right_results else ", wrong results"
        return f"false   {verdict.workload}: {reported}{results}"
    return f"missed  {verdict.workload} fault {verdict.fault}: {reported}, expected {verdict.expected_rule}"


def print_result(verdicts: list[Verdict]) -> int:
    correct = [verdict for verdict in verdicts if verdict.fault == 0]
    faulty = [verdict for verdict in verdicts if verdict.fault]
    clean, named = (sum(verdict.is_right for verdict in of) for of in (correct, faulty))
    seconds = [verdict.seconds for verdict in verdicts]
    passed = clean == len(correct) and named == len(faulty)
    print(
        f"{'PASS' if passed else 'FAIL'}  {clean} of {len(correct)} workloads clean, {named} of {len(faulty)} "
        f"faults found; median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
