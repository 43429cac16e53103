"""Compare the results of Triton's kernels on the simulated device with NumPy, under several --reorder seeds.

python perf/triton_kernels/corpus.py FOLDER                         # where triton is installed
python -m zinc_rt.perf.triton_kernels.results FOLDER [--seeds 20] [-k PART] [--sanitizer full]

Exit status 1 if an output is wrong or the sanitizer reports a finding: for these kernels it would be false.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.launching.launch import launch
from zinc_rt.launching.values import LaunchBuffer
from zinc_rt.perf.triton_kernels.first_result import read_arguments
from zinc_rt.perf.triton_kernels.references import references


def check(path: Path, sanitizer: str, seed: int) -> tuple[int, int]:
    """Launch one workgroup. Return the numbers of wrong elements and of findings."""
    args = read_arguments(path.with_suffix(".args.json"))
    values = {name: copy_value(value) for name, value in args.items()}
    result = launch(path, grid=1, args=args, device="sim", sanitizer=sanitizer, timeout_seconds=600, reorder=seed)
    expected = references(path.stem, values)
    wrong = sum(item.wrong_elements(result.outputs[name]) for name, item in expected.items())
    return wrong, len(result.findings)


def copy_value(value: Any) -> Any:
    """Return the number or array of an argument as it is before the launch."""
    return np.array(value.array if isinstance(value, LaunchBuffer) else value)[()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of code objects, from corpus.py")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds, from 0 on (default: %(default)s)")
    parser.add_argument("--sanitizer", default="full", help="mode: off, fast or full")
    parser.add_argument("-k", dest="part", default="", help="only kernels with this in their name")
    options = parser.parse_args(arguments)
    paths = [path for path in sorted(options.folder.glob("*.hsaco")) if options.part in path.name]
    wrong_launches = findings = 0
    for path in paths:
        results = [check(path, options.sanitizer, seed) for seed in range(options.seeds)]
        wrong = sum(elements > 0 for elements, _ in results)
        reported = sum(count for _, count in results)
        wrong_launches, findings = wrong_launches + wrong, findings + reported
        print(f"{path.stem:36s} {len(results)} launches  {wrong} wrong  {reported} findings", flush=True)
    count = len(paths) * options.seeds
    print(f"{len(paths)} kernels, {count} launches: {wrong_launches} wrong, {findings} findings")
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return int(bool(wrong_launches or findings))


if __name__ == "__main__":
    raise SystemExit(main())
