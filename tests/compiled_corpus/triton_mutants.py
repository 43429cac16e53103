# ruff: noqa: E402
"""`python3 ci/run.py triton-mutants FOLDER`: mutants by seed of compiled Triton kernels, as one table.

FOLDER is that of perf/triton_kernels/corpus.py. Each mutant lacks a wait, barrier, cache operation, bound or
initialisation (mutants.py). It must have a finding with all checks or wrong results, or be shown to do the same
(equivalence.py, unchanged.py). A file given with --json is continued; undecided mutants in it are judged again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "sim" / "shader"), str(HERE.parent)]

import numpy as np
from compiled_job import Job
from equivalence import is_equivalent
from kernel_run import Binary, load_binary, patch_code
from mutants import Mutant, list_mutants
from unchanged import WatchedRun, is_output_unchanged, watch

from zinc_rt.host.errors import ZincError
from zinc_rt.host.terminal import Table, show
from zinc_rt.launching.code_files import read_image
from zinc_rt.launching.launch import LaunchStopped, launch
from zinc_rt.perf.intervals import compute_wilson_lower_bound
from zinc_rt.perf.triton_kernels.first_result import read_arguments
from zinc_rt.perf.triton_kernels.references import CorpusOutput, references
from zinc_rt.perf.triton_kernels.results import copy_value

OUTCOMES = ("finding", "remark", "output", "stopped", "equivalent", "missed", "crash")
UNDECIDED = ("missed", "crash")
TIMEOUT_SECONDS = 30.0
_SCRATCH = (np.zeros(16, np.uint8), np.zeros(16, np.uint8))  # Triton's last two arguments
FILL = 0x5A
KINDS = ("wait", "barrier", "cache", "bound", "initialisation")


@dataclass(frozen=True, slots=True)
class TritonMutant:
    """The verdict on a mutant. `text`: the finding, the proof or the error."""

    number: int  # of the draw
    kernel: str
    kind: str
    what: str
    outcome: str
    text: str
    seconds: float


def read_filled_arguments(path: Path) -> dict[str, Any]:
    """Return the arguments of a launch, with bytes FILL in the outputs, so that stores of 0 show."""
    kinds = json.loads(path.with_suffix(".args.json").read_text())
    args = read_arguments(path.with_suffix(".args.json"))
    for name, kind in kinds.items():
        if isinstance(kind, str) and kind.startswith("out "):
            args[name].array.view(np.uint8)[:] = FILL
    return args


def count_wrong_elements(expected: CorpusOutput, output: np.ndarray, initial: np.ndarray) -> int:
    """Count the elements that differ from the reference; behind its end, those that the kernel has changed."""
    size = expected.values.size
    changed = output[size:] != initial[size:]
    return expected.wrong_elements(output[:size]) + int(changed.sum())


@cache
def read_binary(path: Path) -> tuple[Binary, tuple[Mutant, ...]]:
    binary = load_binary(path)
    shared_bytes = json.loads(path.with_suffix(".json").read_text())["shared"]
    binary = replace(
        binary, kernel=replace(binary.kernel, group_bytes=max(shared_bytes, binary.kernel.group_bytes))
    )
    return binary, tuple(mutant for mutant in list_mutants(binary) if mutant.kind in KINDS)


@cache
def list_remarks(path: Path) -> frozenset[tuple[str, int | None]]:
    """Return the remarks on the kernel itself, by rule and pc."""
    result = launch(path, grid=1, args=read_arguments(path.with_suffix(".args.json")), device="sim")
    return frozenset((remark.rule, remark.pc) for remark in result.remarks)


def make_job(path: Path) -> Job:
    threads = next(iter(read_image(path).kernels.values())).threads
    assert threads is not None
    values = read_filled_arguments(path)
    return Job([*(copy_value(value) for value in values.values()), *_SCRATCH], 1, threads, {})


@lru_cache(maxsize=1)
def watch_original(path: Path) -> WatchedRun | None:
    return watch(read_binary(path)[0], make_job(path))


def draw_mutants(folder: Path, count: int, seed: int) -> list[tuple[Path, Mutant]]:
    """Return `count` mutants: a kernel, one of its kinds and one of its mutants of that kind, each at random."""
    generator, paths = random.Random(seed), sorted(folder.glob("*.hsaco"))
    drawn: dict[object, tuple[Path, Mutant]] = {}
    while len(drawn) < count:
        path = generator.choice(paths)
        mutants = read_binary(path)[1]
        kind = generator.choice(sorted({mutant.kind for mutant in mutants}))
        mutant = generator.choice([mutant for mutant in mutants if mutant.kind == kind])
        drawn[path, mutant.pc, kind, tuple(mutant.changed.items())] = (path, mutant)
    return list(drawn.values())


def judge_mutant(number: int, path: Path, mutant: Mutant) -> TritonMutant:
    start = time.monotonic()
    outcome, text = _find_outcome(path, mutant)
    return TritonMutant(
        number, path.stem, mutant.kind, mutant.what, outcome, text, round(time.monotonic() - start, 2)
    )


def _find_outcome(path: Path, mutant: Mutant) -> tuple[str, str]:
    image = read_image(path)
    image = replace(image, image=patch_code(image.image, mutant.changed))
    args = read_filled_arguments(path)
    values = {name: copy_value(value) for name, value in args.items()}
    try:
        result = launch(image, grid=1, args=args, device="sim", timeout_seconds=TIMEOUT_SECONDS)
    except LaunchStopped as stop:
        return "stopped", str(stop)
    except ZincError as error:
        return "crash", str(error)
    if result.findings:
        return "finding", f"{result.findings[0].rule}: {result.findings[0].detail}"
    added = [remark for remark in result.remarks if (remark.rule, remark.pc) not in list_remarks(path)]
    if added:
        return "remark", f"{added[0].rule}: {added[0].detail}"
    for name, item in references(path.stem, values).items():
        if wrong := count_wrong_elements(item, result.outputs[name], values[name]):
            return "output", f"{wrong} elements of {name}"
    binary, _ = read_binary(path)
    job = make_job(path)
    assert isinstance(job.threads, tuple)
    proof = is_equivalent(binary, mutant, math.prod(job.threads)) or is_output_unchanged(
        binary, job, mutant, watch_original(path)
    )
    return ("equivalent", proof) if proof else ("missed", "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/run.py triton-mutants", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("folder", type=Path, help="code objects, from perf/triton_kernels/corpus.py")
    parser.add_argument("--count", type=int, default=400, help="number of mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    parser.add_argument("--json", metavar="F", type=Path, help="a line per verdict; an existing file is continued")
    options = parser.parse_args()
    if not any(options.folder.glob("*.hsaco")):
        parser.error(f"{options.folder}: no *.hsaco; write them with perf/triton_kernels/corpus.py")
    verdicts: dict[int, TritonMutant] = {}
    if options.json and options.json.exists():
        for line in options.json.read_text().splitlines():
            verdict = TritonMutant(**json.loads(line))
            verdicts[verdict.number] = verdict
    drawn = enumerate(draw_mutants(options.folder, options.count, options.seed))
    for judged, (number, (path, mutant)) in enumerate(sorted(drawn, key=lambda item: item[1][0])):
        if number in verdicts and verdicts[number].outcome not in UNDECIDED:
            continue
        verdict = judge_mutant(number, path, mutant)
        verdicts[number] = verdict
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
        if verdict.outcome in UNDECIDED:
            print(f"{verdict.outcome}  {verdict.kernel} {verdict.kind}: {verdict.what} {verdict.text}", flush=True)
        elif judged % 20 == 19:
            print(f"{judged + 1} of {options.count}", file=sys.stderr, flush=True)
    return print_result(list(verdicts.values()))


def print_result(verdicts: list[TritonMutant]) -> int:
    counts = Counter((verdict.kind, verdict.outcome) for verdict in verdicts)
    rows = [(kind, *(counts[kind, outcome] for outcome in OUTCOMES)) for kind in KINDS]
    show(Table(("mutant without", *OUTCOMES), rows))
    decided = sum(verdict.outcome not in UNDECIDED for verdict in verdicts)
    crashed = sum(verdict.outcome == "crash" for verdict in verdicts)
    bound = compute_wilson_lower_bound(decided, len(verdicts))
    passed = decided >= 0.99 * len(verdicts) and not crashed
    print(
        f"{'PASS' if passed else 'FAIL'}  {decided} of {len(verdicts)} mutants found or shown the same, Wilson "
        f"lower bound {bound:.1%}; {crashed} crashes; load {os.getloadavg()[0]:.1f}"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
