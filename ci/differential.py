#!/usr/bin/env python3
"""Compare two simulators: run the same programs on ours and on AMD's rocjitsu, and list the differences, with the
hardware's result where it was captured.

rocjitsu is taken from $ROCJITSU, else from PATH; $ROCJITSU_CONFIG is its description of the chip. Nothing of it is
downloaded. The programs open /dev/kfd as on a machine with the card: `zinc-rt sim -- PROGRAM` here, `rocjitsu
--config CONFIG -- PROGRAM` there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SECONDS = 1800
SHOWN = 50
EXAMPLES = """\
examples:
  ROCJITSU_CONFIG=configs/gfx1201_r9700.json python ci/differential.py
  python ci/differential.py --only kernels --seeds 200 --json differences.json

The last line is the verdict. exit codes: 0 no difference, 1 differences, or one
of the two did not run a program to its end, 77 no rocjitsu is installed.
"""
Case = tuple[str, ...]
Values = dict[Case, str]


@dataclass(frozen=True)
class Program:
    """`words` are appended to a simulator's command; `{out}` in them is the file that `values` reads: a value for
    each case.
    """

    words: tuple[str, ...]
    values: Callable[[Path], Values]


@dataclass(frozen=True)
class Difference:
    """`ours`, `theirs` are "" if that simulator has no such case. `silicon` is the captured result, "" if there is
    none.
    """

    program: str
    case: Case
    ours: str
    theirs: str
    silicon: str = ""

    @property
    def verdict(self) -> str:
        """Return which simulator agrees with hardware."""
        if not self.silicon:
            return ""
        right = [name for name, value in (("ours", self.ours), ("theirs", self.theirs)) if value == self.silicon]
        return f"silicon {self.silicon}: {right[0] if right else 'neither'}"


def report_values(path: Path) -> Values:
    """Return the status of each result of a zinc-rt-report/1."""
    results = json.loads(path.read_text())["results"]
    return {(result["id"], result["kind"], result["tier"] or ""): result["status"] for result in results}


def array_values(path: Path) -> Values:
    """Return the words of each array, in hex, by its name and index."""
    with np.load(path) as file:
        return {
            (name, str(index)): f"{word:08x}" for name in file for index, word in enumerate(file[name].reshape(-1))
        }


def list_programs(seeds: int) -> dict[str, Program]:
    command = ("--device", "hw", "--json", "{out}")
    return {
        "kernels": Program(
            (sys.executable, str(ROOT / "ci" / "differential_kernels.py"), "{out}.npz", str(seeds)),
            lambda path: array_values(path.with_name(f"{path.name}.npz")),
        ),
        "pm4-test": Program((str(BIN / "zinc-rt-pm4-test"), "--tiers", "t1", *command), report_values),
        "validate": Program(
            (str(BIN / "zinc-rt"), "validate", "--model", "tiny-qwen3", "--tiers", "t1,t_cpu", *command),
            report_values,
        ),
    }


def silicon_values() -> Values:
    """Return the captured results of ROWS of differential_kernels.py."""
    sys.path.insert(0, str(ROOT / "ci"))
    from differential_kernels import captured_arrays, expected_arrays

    rows = expected_arrays(captured_arrays())
    return {(name, str(index)): f"{word:08x}" for name, words in rows.items() for index, word in enumerate(words)}


def find_differences(
    program: str, own_values: Values, other_values: Values, silicon: Mapping[Case, str]
) -> list[Difference]:
    """Return every case in which the two simulators differ, in our order."""
    return [
        Difference(program, case, own_values.get(case, ""), other_values.get(case, ""), silicon.get(case, ""))
        for case in dict.fromkeys((*own_values, *other_values))
        if own_values.get(case) != other_values.get(case)
    ]


def simulated_values(simulator: list[str], program: Program) -> tuple[Values, str]:
    """Return (values, reason for missing values). The program's exit code is ignored if it wrote its file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = [word.replace("{out}", str(out)) for word in program.words]
        try:
            result = subprocess.run(
                [*simulator, *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return {}, f"not over within {SECONDS} s"
        except OSError as error:
            return {}, str(error)
        try:
            return program.values(out), ""
        except FileNotFoundError:
            lines = result.stderr.strip().splitlines() or ["it said nothing"]
            return {}, f"exit code {result.returncode}: {lines[-1]}"


def reference_command() -> list[str] | str:
    """Return the command that runs a program on rocjitsu, or the reason why it cannot run."""
    path = os.environ.get("ROCJITSU") or shutil.which("rocjitsu")
    if not path:
        return "no rocjitsu is installed: neither $ROCJITSU nor PATH has one"
    config = os.environ.get("ROCJITSU_CONFIG")
    if not config or not Path(config).is_file():
        return f"ROCJITSU_CONFIG: {config or 'not set'}, expected rocjitsu's JSON description of a gfx1201 card"
    return [path, "--config", str(Path(config).resolve()), "--"]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=tuple(list_programs(0)), action="append", help="only run these programs (default: all)"
    )
    parser.add_argument("--seeds", type=int, default=50, metavar="N", help="number of random kernels (default 50)")
    parser.add_argument("--ours", metavar="WORDS", help="command that starts our simulator")
    parser.add_argument(
        "--theirs", metavar="WORDS", help="command that starts their simulator (default: rocjitsu)"
    )
    parser.add_argument("--json", metavar="FILE", help="write every difference to this file")
    return parser


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    theirs = shlex.split(arguments.theirs) if arguments.theirs else reference_command()
    if isinstance(theirs, str):
        print(theirs)
        return 77
    ours = shlex.split(arguments.ours) if arguments.ours else [str(BIN / "zinc-rt"), "sim", "--"]
    differing: list[Difference] = []
    failed, cases, silicon = [], 0, silicon_values()
    for name, program in list_programs(arguments.seeds).items():
        if arguments.only and name not in arguments.only:
            continue
        sides = [simulated_values(item, program) for item in (ours, theirs)]
        for side, (_, reason) in zip(("ours", "theirs"), sides, strict=True):
            if reason:
                failed.append(f"{name}, {side}: {reason}")
        if not any(reason for _, reason in sides):
            differing += find_differences(name, sides[0][0], sides[1][0], silicon)
            cases += len(sides[0][0])
    for difference in differing[:SHOWN]:
        print(
            f"{difference.program:9} {' '.join(difference.case)}: ours {difference.ours or '-'}, "
            f"theirs {difference.theirs or '-'}",
            end="",
        )
        print(f"; {difference.verdict}" if difference.verdict else "")
    if len(differing) > SHOWN:
        print(f"and {len(differing) - SHOWN} more: --json FILE has them all")
    for line in failed:
        print(line)
    if arguments.json:
        rows = [asdict(difference) | {"judged": difference.verdict} for difference in differing]
        Path(arguments.json).write_text(
            json.dumps({"differences": rows, "failed": failed, "cases": cases}, indent=1)
        )
    bad = bool(differing or failed)
    print(
        f"{'FAIL' if bad else 'PASS'}  {cases} cases, {len(differing)} differences, {len(failed)} programs not run"
    )
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
