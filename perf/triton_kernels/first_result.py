"""Measure the time to the first result of Triton's kernels on the simulated device, from doorbell to fence.

python perf/triton_kernels/corpus.py FOLDER                         # where triton is installed
python -m zinc_rt.perf.triton_kernels.first_result FOLDER [--cold] [-k PART] [--sanitizer fast]

Each kernel runs one workgroup on a device that has just started, in a process of its own; the start of the process
is not in the time. The compiled forms of instructions are on disk, but no kernel is: each kernel's program is
removed from the cache first. With --cold the cache is empty for each kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.target import target_of
from zinc_rt.launching.code_files import read_image
from zinc_rt.launching.launch import launch
from zinc_rt.launching.values import inout

DTYPES: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8,
    "u8": np.uint8, "i32": np.int32, "fp8": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FirstResult:
    """The first launch of a kernel. `started_seconds`: start-up time of the process and the device, before the
    doorbell.
    """

    name: str
    instructions: int
    seconds: float
    started_seconds: float
    findings: int

    @property
    def ms_each(self) -> float:
        return self.seconds * 1e3 / self.instructions


def read_arguments(path: Path) -> dict[str, Any]:
    """Return the arguments of a launch as FOLDER/NAME.args.json describes them."""
    random = np.random.default_rng(7)
    result: dict[str, Any] = {}
    for name, value in json.loads(path.read_text()).items():
        if isinstance(value, str):
            kind, dtype, count = value.split()
            result[name] = _make_array(kind, DTYPES[dtype], int(count), random)
        else:
            result[name] = np.int32(value) if isinstance(value, int) else np.float32(value)
    return result


def _make_array(kind: str, dtype: Any, count: int, random: np.random.Generator) -> Any:
    if kind in ("out", "zeros"):
        return inout(np.zeros(count, dtype))
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, 64, count).astype(dtype)
    return random.standard_normal(count).astype(dtype)


def count_instructions(path: Path) -> int:
    """Return the number of reachable instructions."""
    image = read_image(path)
    kernel = next(iter(image.kernels.values()))
    graph = find_control_flow(image.image, target_of(image.arch, kernel.wave), kernel.entry_at, running=True)
    return len(graph.instructions())


def measure_first_result(path: Path, sanitizer: str) -> FirstResult:
    args = read_arguments(path.with_suffix(".args.json"))
    start = time.perf_counter()
    result = launch(path, grid=1, args=args, device="sim", sanitizer=sanitizer, timeout_seconds=600)
    started = time.perf_counter() - start - result.seconds[0]
    return FirstResult(path.stem, count_instructions(path), result.seconds[0], started, len(result.findings))


def measure_all(paths: Sequence[Path], sanitizer: str, *, cold: bool) -> Iterator[FirstResult]:
    """Yield the first result of each kernel, each in a new process. The user's caches stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        for path in () if cold else paths:
            _measure_in_process(path, sanitizer, cache)
        for number, path in enumerate(paths):
            _forget_programs(cache)
            yield _measure_in_process(path, sanitizer, cache / str(number) if cold else cache)


def _measure_in_process(path: Path, sanitizer: str, cache: Path) -> FirstResult:
    command = [sys.executable, "-m", __spec__.name, str(path), "--sanitizer", sanitizer]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return FirstResult(**json.loads(result.stdout))


def _forget_programs(folder: Path) -> None:
    """Remove the programs of kernels, whose names contain their forms, from the cache of the simulated device."""
    for file in folder.rglob("*.zro"):
        if b'"forms": [' in file.read_bytes():
            file.unlink()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of code objects, from corpus.py")
    parser.add_argument("--cold", action="store_true", help="with empty caches")
    parser.add_argument("--sanitizer", default="full", help="mode: off, fast or full")
    parser.add_argument("-k", dest="part", default="", help="only kernels whose name contains this")
    options = parser.parse_args(arguments)
    if options.folder.is_file():
        print(json.dumps(asdict(measure_first_result(options.folder, options.sanitizer))))
        return
    paths = [path for path in sorted(options.folder.glob("*.hsaco")) if options.part in path.name]
    rows = []
    for result in measure_all(paths, options.sanitizer, cold=options.cold):
        rows.append(result)
        print(
            f"{result.name:36s} {result.instructions:6d} instructions  {result.seconds:7.3f} s  "
            f"{result.ms_each:6.3f} ms"
            f" each  start {result.started_seconds:5.2f} s  {result.findings} findings",
            flush=True,
        )
    median = statistics.median(row.ms_each for row in rows)
    longest = max(rows, key=lambda row: row.seconds)
    print(f"median {median:.3f} ms an instruction of {len(rows)} kernels")
    print(f"longest {longest.seconds:.3f} s, {longest.name}")
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
