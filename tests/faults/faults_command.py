#!/usr/bin/env python3
"""Plant every fault of the corpus, one at a time, and see whether the commands that a user runs name it.

Each fault goes into a copy of the tree. What its row runs there, and what those commands advise, is scored: named
(place and cause), located (the place), detected (something failed), missed (nothing did), misleading (something
innocent was accused).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from fault_plant import CannotPlant, copy_tree, plant_fault, reason_not_applicable
from fault_row import BadRow, Fault, load_faults
from fault_score import NOT_PLANTED, REFUSED, SCORES, FaultScore, is_matched_by_healthy_run, score_output
from fault_walk import CommandOutput, run_fault_commands

NAMED_SHARE = 0.95
SCHEMA = "zinc-rt-faults/1"
EXAMPLES = """\
examples:
  python3 ci/run.py faults                     the whole corpus: some minutes
  python3 ci/run.py faults --list 'kernel-*'   what there is
  python3 ci/run.py faults rope-base -v        one fault, with all that was printed
  python3 ci/run.py faults --sample 40 --seed 7     40 faults by seed
  python3 ci/run.py faults --healthy           the same commands with nothing planted: none may fail, and none may
                                               print the words that name a fault

exit codes: 0 at least 95 % are named, none is missed and none misleading; 1 otherwise; 2 wrong usage, or a fault
that cannot be planted or whose words a healthy run prints; 130 interrupted.
"""


@dataclass(frozen=True, slots=True)
class FaultResult:
    fault: Fault
    score: FaultScore
    said: tuple[CommandOutput, ...]
    seconds: float

    def as_dict(self) -> dict[str, object]:
        message = ("name", "room", "kind", "cause", "guilty", "waits_for")
        about = {name: getattr(self.fault, name) for name in message}
        documents = [asdict(item) for item in self.said]
        return {**about, **asdict(self.score), "seconds": self.seconds, "said": documents}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        chosen = choose_faults(load_faults(), arguments.names)
        if arguments.sample is not None and arguments.sample < len(chosen):
            picked = set(random.Random(arguments.seed).sample(range(len(chosen)), arguments.sample))
            chosen = [fault for index, fault in enumerate(chosen) if index in picked]
        if arguments.list:
            return list_faults(chosen)
        return check_unmodified_tree(chosen, arguments) if arguments.healthy else try_all(chosen, arguments)
    except (BadRow, CannotPlant, ValueError) as error:
        print(f"ci/run.py faults: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ci/run.py faults: interrupted", file=sys.stderr)
        return 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ci/run.py faults", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="select faults by name, glob or package (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="list the faults without planting any")
    parser.add_argument("--sample", type=int, metavar="N", help="a random sample of N of the selected faults")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of --sample (default 0)")
    parser.add_argument("--healthy", action="store_true", help="run the commands without planting a fault")
    parser.add_argument("--json", metavar="FILE", help="write all results with the full output; - for stdout")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, metavar="N", help="at once (default: cores)")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="folder kept between runs (default: in the user's cache)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show the output of every command")
    return parser


def choose_faults(corpus: Sequence[Fault], names: Sequence[str]) -> list[Fault]:
    for name in names:
        if not any(matches_name(fault, name) for fault in corpus):
            raise ValueError(f"unknown fault {name!r}; --list shows all faults")
    return [fault for fault in corpus if not names or any(matches_name(fault, name) for name in names)]


def matches_name(fault: Fault, name: str) -> bool:
    return fault.room == name or fnmatch(fault.name, name)


def list_faults(chosen: Sequence[Fault]) -> int:
    for fault in chosen:
        problem = reason_not_applicable(fault)
        where = f"{fault.name:<34} {fault.room:<10} {fault.kind:<24}"
        print(f"{where} {fault.cause}{f'  ({problem})' if problem else ''}")
    print(f"{len(chosen)} faults")
    return 0


class HealthyTree:
    """The output of commands on an unmodified copy of the tree, each run once, when first needed."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self._tree, self._cache = copy_tree(folder / "zinc"), cache
        self._runs: dict[tuple[str, ...], list[CommandOutput]] = {}
        self._lock = threading.Lock()

    def outputs(self, fault: Fault) -> list[CommandOutput]:
        """Return what the fault's own commands print here; nothing for commands on a file that its edits make."""
        if any("copy" in edit.options for edit in fault.edits):
            return []
        with self._lock:
            if fault.run not in self._runs:
                self._runs[fault.run] = run_fault_commands(fault, self._tree, cache=self._cache)
            return self._runs[fault.run]

    def text(self, fault: Fault) -> str:
        return "\n".join(item.text for item in self.outputs(fault)).replace(str(self._tree), ".")


def try_fault(fault: Fault, *, cache: Path, healthy: HealthyTree | None = None) -> FaultResult:
    """Plant one fault in a temporary copy. Without `healthy`, only the form of a line tells whether it failed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder) / "zinc")
        try:
            plant_fault(fault, tree)
        except CannotPlant as error:
            return FaultResult(fault, FaultScore(NOT_PLANTED, str(error)), (), 0.0)
        nodes = tuple(run_fault_commands(fault, tree, cache=cache))
        nodes = tuple(CommandOutput(node.command, node.exit, node.text.replace(str(tree), ".")) for node in nodes)
    seconds = round(time.monotonic() - started, 1)
    return FaultResult(fault, score_output(fault, nodes, healthy.text(fault) if healthy else ""), nodes, seconds)


def cache_folder(arguments: argparse.Namespace) -> Path:
    """Cache compiled kernels and the oracle's results by digest, so that no fault can affect another."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    cache: Path = arguments.cache or Path(home) / "zinc_rt" / "faults"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def try_all(chosen: Sequence[Fault], arguments: argparse.Namespace) -> int:
    out = sys.stderr if arguments.json == "-" else sys.stdout
    result: list[FaultResult] = []
    for item in try_each(chosen, arguments):
        result.append(item)
        row = f"{item.score.score:<10} {item.fault.name:<34} {item.seconds:>5.0f} s  {item.score.why}"
        print(row, file=out, flush=True)
        if arguments.verbose:
            for output in item.said:
                print(f"$ zinc-rt {output.command}\n{output.text}exit {output.exit}\n", file=out)
    counts = Counter(item.score.score for item in result)
    passed = not counts["missed"] and not counts["misleading"] and counts["named"] >= NAMED_SHARE * len(result)
    message = ", ".join(
        f"{counts[name]} {name}" for name in (*SCORES, NOT_PLANTED, REFUSED) if name in SCORES or counts[name]
    )
    print(f"{'PASS' if passed else 'FAIL'}  {len(result)} faults: {message}", file=out)
    if arguments.json:
        body = {"schema": SCHEMA, "counts": dict(counts), "faults": [item.as_dict() for item in result]}
        text = json.dumps(body, indent=1)
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 2 if counts[NOT_PLANTED] or counts[REFUSED] else 0 if passed else 1


def try_each(chosen: Sequence[Fault], arguments: argparse.Namespace) -> Iterator[FaultResult]:
    cache = cache_folder(arguments)
    pool = ThreadPoolExecutor(max(1, arguments.jobs))
    with tempfile.TemporaryDirectory() as folder:
        healthy = HealthyTree(Path(folder), cache)
        try:
            yield from pool.map(lambda fault: try_fault(fault, cache=cache, healthy=healthy), chosen)
        finally:
            pool.shutdown(cancel_futures=True)


def check_unmodified_tree(chosen: Sequence[Fault], arguments: argparse.Namespace) -> int:
    """Run the corpus's commands on the unmodified tree; a command that fails there detects nothing, and a row
    whose words it prints is refused.
    """
    failed = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = HealthyTree(Path(folder), cache_folder(arguments))
        rows: dict[tuple[str, ...], list[Fault]] = {}
        for fault in chosen:
            if not any("copy" in edit.options for edit in fault.edits):
                rows.setdefault(fault.run, []).append(fault)
        for number, (run, faults) in enumerate(rows.items(), 1):
            bad = next((node for node in tree.outputs(faults[0]) if node.exit), None)
            failed += bad is not None
            print(f"{'FAIL' if bad else 'pass'}  {number} of {len(rows)}  {' && '.join(run)}", flush=True)
            if bad is not None:
                print(bad.text)
            for fault in faults:
                if is_matched_by_healthy_run(fault, tree.text(fault)):
                    refused += 1
                    print(f"FAIL  {fault}: the healthy run matches {' and '.join(fault.named)}")
    verdict = "FAIL" if failed or refused else "PASS"
    print(f"{verdict}  {len(rows)} commands on the healthy tree, {failed} failed, {refused} rows refused")
    return 1 if failed or refused else 0


if __name__ == "__main__":
    sys.exit(main())
