"""The workloads in workloads/, their faults and their results in NumPy, and verdicts of the sanitizer.

They re-express by description the workloads of the tests of ConSan, Triton's concurrency sanitizer
(triton-lang/triton, python/test/gluon/test_consan.py). gfx12 has no TMA, mbarriers or asynchronous matrix unit:
waves take their roles, and counters in LDS take that of mbarriers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.launching.launch import LaunchStopped, launch
from zinc_rt.launching.source import compile_source
from zinc_rt.launching.values import inout, out

FOLDER = Path(__file__).with_name("workloads")
GROUPS, TILE = 4, 32
ELEMENTS = GROUPS * TILE - 5
TIMEOUT_SECONDS = 10.0  # of a launch: a fault may leave a wave waiting
_FAULT = re.compile(r"^// (\d) ([\w-]+): (.+)$", re.MULTILINE)
_LANES = np.arange(TILE, dtype=np.uint32)

Tiles = np.ndarray  # [GROUPS, TILE] uint32: the input, 0 behind its end


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault. `rule`: the rule of the finding that names its class."""

    number: int
    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    expected: Callable[[Tiles], np.ndarray]  # [GROUPS, TILE], or [2, GROUPS, TILE] for two outputs in a row

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.cl"

    @property
    def faults(self) -> list[Fault]:
        """Return the faults, as listed in the first lines of the source."""
        return [Fault(int(number), rule, text) for number, rule, text in _FAULT.findall(self.path.read_text())]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`fault`: 0 for the correct program. `seconds`: of the launch with all checks, without the compiler."""

    workload: str
    fault: int
    expected_rule: str
    rules: tuple[str, ...]
    findings: tuple[str, ...]
    right_results: bool
    seconds: float

    @property
    def is_right(self) -> bool:
        """Return whether the correct program has no finding, or the fault has one of its class."""
        if self.fault == 0:
            return self.right_results and not self.rules
        return self.expected_rule in self.rules


def _flipped(x: Tiles) -> np.ndarray:
    return x[:, ::-1]


def _rotated(x: Tiles, by: int) -> np.ndarray:
    return np.roll(x, -by, axis=1)


def _commit_groups(x: Tiles) -> np.ndarray:
    index = np.minimum(np.arange(GROUPS * TILE), ELEMENTS - 1)
    values = x.reshape(-1)[:ELEMENTS]
    first, second = (values[at].reshape(GROUPS, TILE) for at in (index, ELEMENTS - 1 - index))
    total = first[:, ::-1] + 2 * second  # of either wave; both exchange the same values
    return 2 * total[:, ::-1]


def _multibuffered(x: Tiles) -> np.ndarray:
    return _flipped(x) * np.uint32(sum(range(1, 8)))


def _double_buffered(x: Tiles) -> np.ndarray:
    index = np.minimum(np.arange(GROUPS * TILE), ELEMENTS - 1)
    loaded = x.reshape(-1)[index].reshape(GROUPS, TILE)[:, ::-1]
    # The wave reads the tile of the other one, whose first value is one larger.
    return (loaded + 1) + 2 * loaded + 3 * (loaded + 1)


def _loop(x: Tiles) -> np.ndarray:
    return 3 * _flipped(x) * 10


def _load_ordering(x: Tiles) -> np.ndarray:
    return sum(_flipped(x) + 3 * x + 2 * turn for turn in range(3))


def _producers(x: Tiles) -> np.ndarray:
    one, two = (sum(_flipped(x) * factor + turn for turn in range(3)) for factor in (1, 2))
    return one + 2 * two


def _sizes(x: Tiles) -> np.ndarray:
    tile = np.concatenate([x + wave for wave in range(6, 14)], axis=1)  # [GROUPS, 256]
    pair = tile + tile[:, ::-1]
    return pair[:, :32] + 2 * pair[:, 96:128] + 3 * pair[:, 160:192]


def _through_memory(x: Tiles) -> np.ndarray:
    total = x + (x + 1) + (x + 2)
    return total + 2 * (total + 1)


def _matrix(x: Tiles) -> np.ndarray:
    return sum(_rotated(x & 255, k) * k for k in range(4))


def _outstanding(x: Tiles) -> np.ndarray:
    return sum(_rotated(x & 255, k) * k + _rotated(x >> 8 & 255, k) * (k + 5) for k in range(4))


WORKLOADS = (
    Workload("copy_wait", _flipped),
    Workload("two_copies_one_counter", lambda x: _flipped(x) + 3 * x),
    Workload("interleaved_copies", lambda x: _flipped(x) + 3 * x),
    Workload("commit_groups", _commit_groups),
    Workload("store_from_shared", lambda x: np.stack([_flipped(x), _flipped(x) + 1])),
    Workload("matrix_operands", _matrix),
    Workload("pending_operand_read", lambda x: sum(_rotated(x & 255, k) * k for k in range(8))),
    Workload("outstanding_products", _outstanding),
    Workload("products_with_counters", lambda x: 5 * _flipped(x) + 7 * x),
    Workload("multibuffered_loop", _multibuffered),
    Workload("double_buffered_registers", _double_buffered),
    Workload("store_wait_load", _flipped),
    Workload("load_wait_store", lambda x: _flipped(x) + 3 * _LANES),
    Workload("two_readers_two_counters", lambda x: 3 * _flipped(x)),
    Workload("two_readers_one_counter", lambda x: 3 * _flipped(x)),
    Workload("two_readers_in_a_loop", _loop),
    Workload("load_ordering", _load_ordering),
    Workload("two_producers_two_consumers", _producers),
    Workload("roles_of_different_sizes", _sizes),
    Workload("groups_through_memory", _through_memory),
)


def judge(workload: Workload, fault: int = 0) -> Verdict:
    """Compile a workload with a fault, 0 for none, and launch it on GROUPS workgroups with all checks."""
    code = compile_source(workload.path, flags=(f"-DFAULT={fault}",))
    values = np.random.default_rng(11).integers(0, 1 << 16, ELEMENTS).astype(np.uint32)
    tiles = np.zeros(GROUPS * TILE, np.uint32)
    tiles[:ELEMENTS] = values
    expected = np.asarray(workload.expected(tiles.reshape(GROUPS, TILE)), np.uint32)
    expected = expected.reshape(-1, GROUPS * TILE)[:, :ELEMENTS].reshape(-1)
    args: dict[str, Any] = {"out": out(expected.size, np.uint32), "in": values, "n": np.uint32(ELEMENTS)}
    if "*scratch" in workload.path.read_text():
        args["scratch"] = inout(np.zeros(GROUPS * 128, np.uint32))
    start = time.perf_counter()
    try:
        result = launch(code, grid=GROUPS, args=args, device="sim", timeout_seconds=TIMEOUT_SECONDS)
        findings, right = result.findings, bool(np.array_equal(result.outputs["out"], expected))
    except LaunchStopped as stop:
        findings, right = stop.findings, False
    seconds = time.perf_counter() - start
    rules = tuple(sorted({finding.rule for finding in findings}))
    texts = tuple(f"{finding.line}: {finding.rule}: {finding.detail or finding.access}" for finding in findings)
    rule = next((item.rule for item in workload.faults if item.number == fault), "")
    return Verdict(workload.name, fault, rule, rules, texts, right, seconds)
