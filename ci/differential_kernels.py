"""Run kernels on the AMD GPU behind /dev/kfd: random programs, and rows captured on hardware.

    python ci/differential_kernels.py OUT.npz SEEDS

A child of ci/differential.py, which runs it once behind each simulator. OUT.npz: a u32 array for each case.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "sim" / "shader"), str(TESTS)]

import random_programs  # noqa: E402
from vector_programs import INPUTS, OUTPUTS, read_programs  # noqa: E402

from zinc_rt.engine.devices import find_linux_driver  # noqa: E402
from zinc_rt.isa.target import DEFAULT_ARCH  # noqa: E402
from zinc_rt.kmd.discover import find_gpus  # noqa: E402
from zinc_rt.kmd.kfd import KfdProcess  # noqa: E402
from zinc_rt.launching.code_object import CodeImage, CodeKernel  # noqa: E402
from zinc_rt.launching.dispatch import KernelOnQueue  # noqa: E402
from zinc_rt.launching.kernarg import LaunchShape  # noqa: E402
from zinc_rt.pm4.packets import SetShReg  # noqa: E402
from zinc_rt.pm4.registers import Sh  # noqa: E402

Array = np.ndarray
ROWS = TESTS / "sim" / "shader" / "silicon_rows.txt"
RSRC1 = 0xF0 << 12 | 31  # 256 VGPRs; denormals kept
TGID_X, WAVE32 = 1 << 7, 1 << 10
SECONDS, THREADS, LANES = 60.0, 64, 32


def captured_arrays(path: Path = ROWS) -> dict[str, Array]:
    """Return rows [n, words] u32 of the dot products of silicon_rows.txt; the file's header describes the
    words.
    """
    by_kernel: dict[str, list[list[int]]] = {}
    group: list[list[int]] | None = None
    for line in path.read_text().splitlines():
        if line.startswith(("dot2", "wmma")):
            group = by_kernel[line] = []
        elif not re.match(r"[0-9a-f]+( |$)", line):
            group = None  # another group's name, or a comment
        elif group is not None:
            group.append([int(word, 16) for word in line.split()])
    return {name: np.array(rows, np.uint32) for name, rows in by_kernel.items()}


def expected_arrays(rows: dict[str, Array]) -> dict[str, Array]:
    """Return the hardware's results, by case."""
    return {name: item[:, 3 if name.startswith("dot2") else 33] for name, item in rows.items()}


class DirectGpu:
    """The first GPU; runs machine code with pointers in user data."""

    def __init__(self, process: KfdProcess, driver: Any) -> None:
        node = next(gpu.node for gpu in find_gpus(driver).gpus if gpu.node is not None)
        self._gpu = process.open_gpu(node)

    def run(
        self, code: bytes, arrays: list[Array], extra: tuple[int, ...], groups: int, threads: int
    ) -> list[Array]:
        """Run code with each array's address in a pair of user SGPRs, followed by `extra`. Return the arrays after
        the run.
        """
        on = KernelOnQueue(self._gpu, None)
        placed = [on.put(array, "data") for array in arrays]
        user = [part for item in placed for part in (item.gpu_va & 0xFFFFFFFF, item.gpu_va >> 32)] + list(extra)
        kernel = CodeKernel(
            "kernel", (), 0, 0, 0, False, 0, 0, RSRC1, len(user) << 1 | TGID_X, 0, WAVE32, 0
        )  # fmt: skip
        image_va = on.load(CodeImage(DEFAULT_ARCH, code, (), {"kernel": kernel}))
        packets = on.packets(kernel, image_va, 0, LaunchShape((groups, 1, 1), (threads, 1, 1), 1), 0)
        packets = [
            SetShReg(Sh.USER_DATA_0, tuple(user + [0] * (16 - len(user))))
            if isinstance(packet, SetShReg) and packet.register == Sh.USER_DATA_0
            else packet
            for packet in packets
        ]
        on.run(packets, SECONDS, lambda: "")
        return [on.get(buffer, array) for buffer, array in zip(placed, arrays, strict=True)]


def run_dot2(gpu: DirectGpu, rows: Array, kind: str) -> Array:
    padded = np.resize(rows, (-(-len(rows) // LANES) * LANES, 4))
    argument = [padded[:, index].copy() for index in range(INPUTS)]
    out = [np.zeros(OUTPUTS * 1024, np.uint32), *(np.zeros(len(padded), np.uint32) for _ in range(3))]
    result = gpu.run(read_programs()["dot2_rows"], [*argument, *out], (), len(padded) // LANES, LANES)
    return result[INPUTS + (kind == "bf16")][: len(rows)]


def run_wmma(gpu: DirectGpu, rows: Array, kind: str) -> Array:
    """Run a matrix instruction with equal rows of A and equal columns of B, so that all of D is equal; return lane
    0's first value.
    """
    halves = [
        np.repeat(rows[:, first : first + 16].astype(np.uint16).reshape(-1, 2, 1, 8), 16, axis=2).reshape(-1)
        for first in (0, 16)
    ]
    out = [np.zeros(5 * 1024, np.uint32), *(np.zeros(LANES * len(rows), np.uint32) for _ in range(3))]
    argument = [*(half.view(np.uint32).copy() for half in halves), np.repeat(rows[:, 32], LANES)]
    result = gpu.run(read_programs()[f"wmma_rows_{kind}"], [*argument, *out], (), len(rows), LANES)
    return result[INPUTS + 1].reshape(len(rows), LANES)[:, 0]


def main() -> int:
    path, seeds = sys.argv[1], int(sys.argv[2])
    driver = find_linux_driver()
    assert driver is not None
    cases: dict[str, Array] = {}
    with KfdProcess(driver) as process:
        gpu = DirectGpu(process, driver)
        for name, rows in captured_arrays().items():
            family, kind = name.split()
            cases[name] = (run_dot2 if family == "dot2" else run_wmma)(gpu, rows, kind)
        for seed in range(seeds):
            arrays = [random_programs.output_buffer(THREADS), random_programs.input_data()]
            code = random_programs.random_program(seed)
            cases[f"random {seed}"] = gpu.run(code, arrays, (THREADS,), 1, THREADS)[0].reshape(-1)
    np.savez(path, allow_pickle=False, **cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
