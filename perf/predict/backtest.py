"""Compare predictions for llama.cpp with public rows of llama-bench, and fit the constants of a backend.

The baseline is one bandwidth for each backend: the median of speed times the file's bytes over decode rows of
dense models.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median

from zinc_rt.host.devices import DeviceRow, load_devices
from zinc_rt.host.errors import InputError
from zinc_rt.perf.predict.llama_cpp import GIB, TEST, BackendConstants, BenchRow, predict_speed

COLUMNS = ("chip", "model", "size", "params", "backend", "test", "tps_median")
START = BackendConstants(0.85, 3.0, 3.0, 0.8, 0.2, 0.25, 0.06, 64.0)
LIMITS = {  # of the constants: what they can be on any card
    "read_efficiency": (0.5, 0.95),
    "instructions_a_weight": (0.0, 20.0),
    "kernel_us": (0.5, 10.0),
    "cache_efficiency": (0.05, 0.95),
    "repeated_keys": (0.0, 1.0),
    "matrix_share": (0.02, 0.8),
    "attention_share": (0.01, 0.8),
    "tile": (0.0, 256.0),
}
GROUPS = ("decode dense", "decode mixtures", "prompts")


@dataclass(frozen=True, slots=True)
class Tested:
    """A row and its prediction in tok/s; `baseline` is the prediction from the bandwidth alone, None for a
    prompt.
    """

    row: BenchRow
    predicted: float
    baseline: float | None

    @property
    def error(self) -> float:
        """Return the relative error, positive if the prediction is too fast."""
        return self.predicted / self.row.speed - 1

    @property
    def group(self) -> str:
        if self.row.kind == "pp":
            return "prompts"
        return "decode mixtures" if self.row.mixture else "decode dense"


def read_rows(path: Path) -> list[BenchRow]:
    """Read a CSV file with the columns of COLUMNS. Raise InputError for a row that cannot be parsed."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{path}: missing columns {', '.join(missing)}", next=f"columns: {', '.join(COLUMNS)}"
                )
            rows = [_parse_row(path, reader.line_num, item) for item in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error
    if not rows:
        raise InputError(f"{path}: no rows")
    return rows


def _parse_row(path: Path, line: int, row: dict[str, str]) -> BenchRow:
    test = TEST.fullmatch(row["test"].strip())
    try:
        if test is None:
            raise ValueError(f"unknown test {row['test']!r}, expected pp512, tg128 or tg32 @ d16384")
        size, params, speed = _parse_scaled(row["size"]), _parse_scaled(row["params"]), float(row["tps_median"])
        if min(size, params, speed, int(test["tokens"])) <= 0:
            raise ValueError("expected a positive size, number of weights, speed and number of tokens")
    except (ValueError, IndexError) as error:
        raise InputError(f"{path}:{line}: {error}") from None
    depth = int(test["depth"] or 0)
    return BenchRow(
        row["chip"], row["model"].strip(), size, params, row["backend"].split(",")[0].strip(), test["kind"],
        int(test["tokens"]), depth, speed, row.get("source", ""),
    )  # fmt: skip


def _parse_scaled(text: str) -> float:
    number, unit = text.split()
    units = {"GiB": GIB, "MiB": 1 << 20, "B": 1e9, "M": 1e6}
    if unit not in units:
        raise ValueError(f"{text!r}: expected a number with {', '.join(units)}")
    return float(number) * units[unit]


def find_device(chip: str) -> DeviceRow:
    """Return the device whose key or name a row's chip contains, else the first of its architecture. Raise
    InputError with the known ones.
    """
    words = chip.lower()
    matches = [row for key, row in load_devices().items() if key.lower() in words or row.name.lower() in words]
    matches = matches or [row for row in load_devices().values() if row.arch in words][:1]
    if not matches:
        raise InputError(f"chip {chip!r} has no row in zinc_rt/host/devices.yaml", next=", ".join(load_devices()))
    return max(matches, key=lambda row: len(row.key))


def find_backend(row: BenchRow, known: Mapping[str, BackendConstants]) -> BackendConstants:
    """Return the constants of a row's backend. Raise InputError if there are none."""
    name = {"HIP": "ROCm", "CUDA": "ROCm"}.get(row.backend, row.backend)
    if name not in known:
        raise InputError(f"backend {row.backend!r} has no constants", next=f"one of {', '.join(known)}")
    return known[name]


def backtest(
    rows: Sequence[BenchRow], known: Mapping[str, BackendConstants], bandwidths: Mapping[str, float]
) -> list[Tested]:
    """Predict every row. `bandwidths`: the baseline's share of the specified bandwidth by backend."""
    tested = []
    for row in rows:
        device = find_device(row.chip)
        share = bandwidths.get(row.backend)
        baseline = share * device.memory_gbps * 1e9 / row.size if share and row.kind == "tg" else None
        tested.append(Tested(row, predict_speed(row, device, find_backend(row, known)), baseline))
    return tested


def fit_bandwidth_baseline(rows: Iterable[BenchRow]) -> dict[str, float]:
    """Return the baseline: the median share of the specified bandwidth by backend."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        if row.kind == "tg" and not row.mixture:
            peak = find_device(row.chip).memory_gbps * 1e9
            shares.setdefault(row.backend, []).append(row.speed * row.size / peak)
    return {backend: median(item) for backend, item in shares.items()}


def fit_constants(rows: Sequence[BenchRow]) -> BackendConstants:
    """Return the constants of one backend that minimise the mean absolute logarithmic error of its rows.

    A coordinate search from START with decreasing steps; the same rows give the same constants.
    """

    def compute_loss(constants: BackendConstants) -> float:
        errors = (math.log(predict_speed(row, find_device(row.chip), constants) / row.speed) for row in rows)
        return sum(abs(error) for error in errors) / len(rows)

    best, minimum = START, compute_loss(START)
    step = 0.5
    while step > 0.004:
        improved = False
        for field in fields(BackendConstants):
            low, high = LIMITS[field.name]
            for factor in (1 + step, 1 / (1 + step)):
                value = min(high, max(low, getattr(best, field.name) * factor))
                trial = replace(best, **{field.name: value})
                now = compute_loss(trial)
                if now < minimum - 1e-9:
                    best, minimum, improved = trial, now, True
        if not improved:
            step /= 2
    return best


def fit_all(rows: Sequence[BenchRow]) -> dict[str, BackendConstants]:
    """Return fitted constants by backend."""
    backends = dict.fromkeys(row.backend for row in rows)
    return {name: fit_constants([row for row in rows if row.backend == name]) for name in backends}


def leave_one_model_out(rows: Sequence[BenchRow]) -> list[Tested]:
    """Predict each model's rows with constants fitted on the other models' rows."""
    tested = []
    for model in dict.fromkeys(row.model for row in rows):
        others = [row for row in rows if row.model != model]
        tested += backtest(
            [row for row in rows if row.model == model], fit_all(others), fit_bandwidth_baseline(others)
        )
    return tested


def summarise_errors(tested: Iterable[Tested]) -> dict[str, tuple[int, float, float | None]]:
    """Return for each group the number of rows and the median absolute errors of prediction and baseline."""
    result: dict[str, list[Tested]] = {name: [] for name in GROUPS}
    for item in tested:
        result[item.group].append(item)
    return {
        name: (len(item), median(abs(one.error) for one in item), _baseline_error(item))
        for name, item in result.items()
        if item
    }


def _baseline_error(tested: list[Tested]) -> float | None:
    errors = [abs(item.baseline / item.row.speed - 1) for item in tested if item.baseline is not None]
    return median(errors) if errors else None
