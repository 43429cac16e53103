#!/usr/bin/env python3
"""Change the product in one place at a time, by seed, and count the changes that its own commands notice.

A mutant is killed if a command fails with a report, crashed if one ends with a traceback or a signal, hung if one
takes longer than its budget, and survived if all pass. Survivors are shown with their change, to be explained.
The commands run on the unmodified tree first: one that fails there would kill every mutant.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fault_plant import CannotPlant, assemble_sources, copy_tree, dependent_kernels
from fault_score import NOTHING_RAN, TRACEBACK
from fault_walk import CommandOutput, fill_placeholders, run_command
from faults_command import cache_folder
from mutant import Mutant, draw_mutants

SCHEMA = "zinc-rt-mutants/2"
KILLED_SHARE, SURE = 0.90, 1.96
OUTCOMES = ("killed", "crashed", "hung", "survived", "not built")
COMMANDS = (
    "validate --tiers t1,t_cpu_native,t_cpu",
    "selftest",
    "kernel-test --quick --device sim --jobs 1",
    "sched-test",
    "validate --isolation --model {qwen3.gguf} --tiers t_cpu --requests 12",
    "vulkan compile --check",
)


@dataclass(frozen=True, slots=True)
class MutantResult:
    mutant: Mutant
    outcome: str
    by: str  # the command that ended otherwise than it should, or why there is none
    seconds: float

    def as_dict(self, seed: int) -> dict[str, Any]:
        about = {name: getattr(self.mutant, name) for name in ("package", "file", "kind", "line", "diff")}
        return {"seed": seed, **about, "outcome": self.outcome, "by": self.by, "seconds": self.seconds}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    mutants = draw_mutants(arguments.seed, arguments.count)
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.kind}\n{mutant.diff}\n")
        return 0
    cache = cache_folder(arguments)
    try:
        records = read_records(arguments.resume)
    except (OSError, ValueError, KeyError) as error:
        print(f"ci/run.py mutate: {arguments.resume}: {error}", file=sys.stderr)
        return 2
    judged = {record["diff"] for record in records}
    mutants = [mutant for mutant in mutants if mutant.diff not in judged]
    bad = find_failing_command(cache, arguments.budget) if mutants else None
    if bad is not None:
        problem = f"`{bad.command}` ends with {bad.exit} on the unmodified tree, so it cannot judge mutants"
        print(f"{bad.text}\nci/run.py mutate: {problem}", file=sys.stderr)
        return 2
    judge = partial(judge_mutant, cache=cache, budget_seconds=arguments.budget)
    pool = ThreadPoolExecutor(max(1, arguments.jobs))
    try:
        for result in pool.map(judge, mutants):
            records.append(result.as_dict(arguments.seed))
            write_records(records, arguments.resume, arguments.json)
            mutant = result.mutant
            print(f"{result.outcome:<9} {mutant.file}:{mutant.line}  {mutant.kind}  {result.by}", flush=True)
            if result.outcome == "survived":
                print(mutant.diff, flush=True)
    except KeyboardInterrupt:
        print("ci/run.py mutate: interrupted", file=sys.stderr)
        return 130
    finally:
        pool.shutdown(cancel_futures=True)
    write_records(records, arguments.resume, arguments.json)
    verdict = judge_records(records)
    print(verdict["measure"]["headline"])
    print(f"{verdict['status'].upper()}  {verdict['reason']}")
    return 0 if verdict["status"] == "pass" else 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ci/run.py mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=150, metavar="N", help="number of mutants (default 150)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the selection (default 0)")
    parser.add_argument(
        "--budget", type=float, default=600, metavar="S", help="seconds for one command (default 600)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (default: cores)"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants without judging any")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results with their changes")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="add to the results in FILE, of any seed, after each mutant, and judge no mutant twice",
    )  # fmt: skip
    parser.add_argument("--cache", type=Path, metavar="DIR", help="folder kept between runs")
    return parser


def judge_mutant(mutant: Mutant, *, cache: Path, budget_seconds: float) -> MutantResult:
    """Run the commands on a copy of the tree with the mutant, until one notices."""
    started = time.monotonic()
    outcome, by = "survived", ""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder) / "zinc")
        (tree / mutant.file).write_text(mutant.text, encoding="utf-8")
        try:
            if mutant.file.endswith((".s", ".inc")) and "gfx1201" in mutant.file:
                assemble_sources(tree, dependent_kernels(tree, Path(mutant.file)))
        except CannotPlant as error:
            return MutantResult(mutant, "not built", str(error).splitlines()[-1], 0.0)
        for command in COMMANDS:
            output = run_command(fill_placeholders(command, tree), tree, cache, seconds=budget_seconds)
            if output.exit not in (0, NOTHING_RAN):
                crashed = TRACEBACK in output.text or output.exit < 0
                outcome, by = ("hung" if output.exit == 124 else "crashed" if crashed else "killed"), command
                break
    return MutantResult(mutant, outcome, by, round(time.monotonic() - started, 1))


def find_failing_command(cache: Path, budget_seconds: float) -> CommandOutput | None:
    """Run the commands on a copy of the unmodified tree. Return the first that fails."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder) / "zinc")
        for command in COMMANDS:
            output = run_command(fill_placeholders(command, tree), tree, cache, seconds=budget_seconds)
            if output.exit not in (0, NOTHING_RAN):
                return output
    return None


def read_records(path: Path | None) -> list[dict[str, Any]]:
    """Return the mutants of a file of --resume, [] if there is none yet. Raises ValueError for another file."""
    if path is None or not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"not a file of schema {SCHEMA}")
    mutants: list[dict[str, Any]] = content["mutants"]
    return mutants


def write_records(records: Sequence[dict[str, Any]], *paths: Path | None) -> None:
    """Write the mutants and their verdict, which the nightly run reads as the result of a stage, atomically."""
    text = json.dumps({"schema": SCHEMA, "results": [judge_records(records)], "mutants": list(records)}, indent=1)
    for path in filter(None, paths):
        part = path.with_suffix(".part")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)


def judge_records(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the verdict as a result of a report: the counts, and the share of killed ones with its lower bound.
    Crashes and hangs are counted apart."""
    counts = Counter(str(record["outcome"]) for record in records)
    judged = counts["killed"] + counts["survived"]
    share, bound = counts["killed"] / judged if judged else 0.0, lower_bound(counts["killed"], judged)
    return {
        "id": "mutants/killed",
        "status": "pass" if share >= KILLED_SHARE else "fail",
        "reason": f"{counts.total()} mutants: "
        + ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name]),
        "measure": {
            "killed_share": share,
            "lower_bound": bound,
            "headline": f"killed {share:.0%} of {judged} that ran to their end, lower bound {bound:.0%}",
        },
        "limit": {"killed_share": KILLED_SHARE},
    }


def lower_bound(successes: int, count: int) -> float:
    """Return the lower end of Wilson's 95 % interval of a share."""
    if not count:
        return 0.0
    share, z = successes / count, SURE**2 / count
    centre = share + z / 2
    return (centre - SURE * math.sqrt(share * (1 - share) / count + z / (4 * count))) / (1 + z)


if __name__ == "__main__":
    sys.exit(main())
