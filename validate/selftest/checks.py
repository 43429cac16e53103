"""The checks of the checkers: each gives a checker something wrong, and something right, and reads its verdict."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zinc_rt.doctor.examples import has_finding, load_rule_examples
from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.engine_core import EngineCore
from zinc_rt.exec import Buffer
from zinc_rt.golden.digests import digest_array
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.probes.injected import FAULTS, InjectedFault, run_injected
from zinc_rt.replay.run import replay
from zinc_rt.sched.sampling import Sampling
from zinc_rt.trace.recorder import record
from zinc_rt.validate.histograms import bins
from zinc_rt.validate.measure import Limit, compare_arrays, compute_kl, compute_ulp_distance

NUMBERS_GROUP = "zinc_rt.selftest_numbers"  # of entry points
GROUPS = ("inject", "doctor", "numbers", "recorder")


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """One check. `run` returns the problem in words, "" if the checker's verdict was right."""

    group: str
    name: str
    run: Callable[[], str]

    @property
    def id(self) -> str:
        return f"{self.group}/{self.name}"


def list_checks() -> list[SelfCheck]:
    """Return every check, grouped in the order of GROUPS."""
    injected = [SelfCheck("inject", f"{f.inject} {f.probe}", partial(check_injected, f)) for f in FAULTS]
    rules = [SelfCheck("doctor", name, partial(check_rule, name)) for name in load_rule_examples()]
    numbers = [SelfCheck("numbers", name, partial(check_numbers, name)) for name in list_numbers()]
    return [*injected, *rules, *numbers, *(SelfCheck("recorder", name, run) for name, run in RECORDER.items())]


def run_checks(checks: list[SelfCheck], jobs: int) -> Iterator[tuple[SelfCheck, str]]:
    """Yield each check with its problem, in order. An exception of a checker is a problem."""
    pool = ThreadPoolExecutor(jobs)
    try:
        futures: list[Future[str]] = [pool.submit(check.run) for check in checks]
        for check, future in zip(checks, futures, strict=True):
            error = future.exception()
            yield check, f"{type(error).__name__}: {error}" if error is not None else future.result()
    finally:
        pool.shutdown(cancel_futures=True)


# --- probes and the doctor's rules ----------------------------------------------------------------------------


def check_injected(fault: InjectedFault) -> str:
    result = run_injected(fault, shared=f"selftest-{secrets.token_hex(4)}" if fault.shared else "")
    if result.status != fault.status:
        return (
            f"--inject {fault.inject}: {fault.probe} is {result.status}, expected {fault.status}: {result.reason}"
        )
    if fault.cause not in result.cause or fault.advice not in result.advice:
        return (
            f"{fault.probe} gives the cause {result.cause!r} and the advice {result.advice!r}, expected "
            f"{fault.cause!r} and {fault.advice!r}"
        )
    return ""


def check_rule(name: str) -> str:
    row = load_rule_examples()[name]
    if not has_finding(row, row["positive"]):
        return "no finding on the machine that the rule is about"
    return "a finding on a machine that only resembles it" if has_finding(row, row["near"]) else ""


# --- arithmetic on samples whose results are known ------------------------------------------------------------


def _histogram() -> list[int]:
    planted = [0.0, -0.0, 2.0**-20, -(2.0**-20), 3.0, -3.0, 1e9, 2.0**-30, math.nan, math.inf]
    counts = bins.count_differences(np.array(planted))
    return [int(place) for place in np.flatnonzero(counts) for _ in range(counts[place])]


def _compare(change: float, limit: Limit) -> list[object]:
    """Return the verdict for an array of which one element differs by `change`."""
    want = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    got = want.copy()
    got[1, 2] += np.float32(change)
    measured = compare_arrays(got, want, limit)
    return [measured.within, measured.first_bad.get("token"), measured.first_bad.get("dim")]


HALF = np.log(np.array([[0.5, 0.5]], np.float32))
QUARTER = np.log(np.array([[0.25, 0.75]], np.float32))
ONE = np.float32(1)
SMALLEST = np.array([2.0**-149], np.float32)
DISTANCES = np.array([0, 1, 2, 3, 4, 1 << 31])
# (what is computed, the value by hand, how far rounding may take it)
Number = tuple[Callable[[], Any], Any, float]
NUMBERS: dict[str, Number] = {
    "kl of equal distributions": (lambda: compute_kl(HALF, HALF + 3).tolist(), [0.0], 1e-7),
    "kl of 1/2, 1/2 from 1/4, 3/4": (lambda: compute_kl(QUARTER, HALF).tolist(), [0.5 * math.log(4 / 3)], 1e-7),
    "kl of 1/4, 3/4 from 1/2, 1/2": (
        lambda: compute_kl(HALF, QUARTER).tolist(), [0.75 * math.log(1.5) - 0.25 * math.log(2)], 1e-7,
    ),
    "kl of a logit that is not finite": (lambda: bool(np.isnan(compute_kl(HALF * np.nan, HALF)).all()), True, 0),
    "ulp distance of neighbours": (
        lambda: compute_ulp_distance(np.array([ONE, -ONE, 0 * ONE]), np.array(
            [np.nextafter(ONE, ONE * 2), np.nextafter(-ONE, ONE * 2), -0.0 * ONE], np.float32)).tolist(),
        [1, 1, 0], 0,
    ),
    "ulp distance across zero": (
        lambda: compute_ulp_distance(SMALLEST, -SMALLEST).tolist(),
        [2], 0,
    ),
    "histogram of differences": (
        _histogram, [4, 25, 31, 31, 32, 37, 58, 62, 63, 63], 0,
    ),
    "histogram of distances": (
        lambda: np.flatnonzero(bins.count_distances(DISTANCES)).tolist(), [0, 1, 2, 3, 32], 0,
    ),
    "comparison within a limit": (lambda: _compare(1e-4, Limit(max_abs=2e-4)), [True, None, None], 0),
    "comparison beyond a limit": (lambda: _compare(3e-4, Limit(max_abs=2e-4)), [False, 1, 2], 0),
    "comparison of bits": (lambda: _compare(1e-6, Limit(bits=True)), [False, 1, 2], 0),
    "digest of an array": (
        lambda: digest_array(np.arange(3, dtype=np.float32)), "86af9da54197c2c6bc602863876a670e", 0,
    ),
    "digest of another shape": (
        lambda: digest_array(np.zeros((2, 3))) == digest_array(np.zeros((3, 2))), False, 0,
    ),
    "digest of one bit": (
        lambda: digest_array(np.ones(9)) == digest_array(np.append(np.ones(8), 1 + 2.0**-23)), False, 0,
    ),
}  # fmt: skip


@cache
def list_numbers() -> dict[str, Number]:
    """Return NUMBERS and those of packages that import this one, which register theirs in pyproject.toml."""
    found = dict(NUMBERS)
    for point in entry_points(group=NUMBERS_GROUP):
        found |= point.load()
    return found


def check_numbers(name: str) -> str:
    compute, want, tolerance = list_numbers()[name]
    got = compute()
    if tolerance:
        near = np.shape(got) == np.shape(want) and bool((np.abs(np.subtract(got, want)) <= tolerance).all())
        return "" if near else f"{got}, expected {want}"
    return "" if got == want else f"{got}, expected {want}"


# --- the recorder ---------------------------------------------------------------------------------------------


def check_recording(*, forget: bool) -> str:
    """Record three steps of two penalised requests and replay them. The second request's token counts are a write
    inside a buffer. With `forget`, the recorder leaves out the last step's writes."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "run.zlog"
        backend = open_backend(ORACLE, "canonical-1", threads=1)
        core = EngineCore(Engine(read_gguf(FOLDER / "qwen3-q.gguf"), backend, ctx=32, slots=2))
        with closing(core), record(core.engine, log, embed_weights=True) as recorder:
            for number in range(2):
                core.submit_tokens(number, (1 + number, 2, 3), Sampling(max_tokens=3, repetition_penalty=1.5))
            core.scheduler.step()
            core.scheduler.step()
            if forget:
                recorder.wrote = _forget_write  # type: ignore[method-assign]
            core.scheduler.step()
        try:
            outcome = replay(log, ORACLE)
        except InputError as error:
            return "" if forget and "not recorded" in str(error) else str(error)
    if forget:
        return "" if not outcome.equal else "a log without a write replays as if it were complete"
    return "" if outcome.equal else f"a complete log does not replay: {outcome.text}"


def _forget_write(buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
    pass


RECORDER = {
    "complete log": partial(check_recording, forget=False),
    "log without a write": partial(check_recording, forget=True),
}
