"""An acceptance test: the board by its specification, then rounds of work while sensors are read."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.kmd_log import KmdLog, KmsgLog, SimulatedLog
from zinc_rt.cli.report import Result, read_results
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host import locks
from zinc_rt.host.devices import find_board
from zinc_rt.probes.accept.board import BoardReading, check_board, read_board, read_link
from zinc_rt.probes.accept.sensors import SensorReader, SensorSample, judge_samples
from zinc_rt.probes.accept.work import SIMULATED_VRAM_BYTES, AcceptWork, WorkDefect
from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.combinations import read_facts
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.kit.context import ProbeContext, ProbeOptions
from zinc_rt.probes.kit.shaders import count_compute_units

MODEL = FOLDER / "qwen3-q.gguf"
SEGMENT_SECONDS = 600.0  # between two replays of the model
LEAST_ROUNDS = 12  # of a segment, however short: rules need samples
GRACE_SECONDS = 120.0  # of a segment's process beyond its time: allocation, compilation
SAMPLE_SECONDS = 1.0
SIMULATED_SAMPLE_SECONDS = 0.1  # so that a short run has enough samples
TESTS = ("vram", "registers", "arithmetic", "hang")
TITLES = {
    "vram": "VRAM keeps its contents under load",
    "registers": "vector registers keep their contents",
    "arithmetic": "every lane computes what IEEE 754 determines",
    "hang": "all work ends",
}
_HANG = "the kernel log of the same time names the ring", "zinc-rt doctor --hung"
_WRONG = (
    "the board computes or stores wrong",
    "run it again cool and at stock clocks; if it repeats, return the board",
)
Progress = Callable[[str], None]


@dataclass(slots=True)
class SegmentResult:
    """The results of a segment. `link_max`: GT/s and lanes of the board."""

    samples: list[SensorSample] = field(default_factory=list)
    defects: list[WorkDefect] = field(default_factory=list)
    rounds: int = 0
    bytes_checked: int = 0
    vram_bytes: int = 0
    evictions: int = 0  # VRAM buffers, of any program, that Linux moved to host memory
    link_max: tuple[float, int] | None = None


def run_acceptance(
    spec: DeviceSpec,
    tier: str,
    seconds: float,
    device: Mapping[str, Any],
    *,
    model: bool,
    say: Progress,
    lock: str = "",
) -> Iterator[Result]:
    """Yield a result per property of the board, test and sensor rule. `seconds`: the time of the work. `lock`: the
    name of the GPU's lock, held while work runs.

    Every part that uses the GPU runs in a separate process, so that a hang ends only that process."""
    reading, problem = _read(spec, tier)
    if reading is None:
        yield Result("board", "accept", "fail", reason=problem, advice="zinc-rt doctor")
        return
    row = find_board(reading.vendor, reading.device, reading.revision)
    facts = read_facts({**device, "firmware": reading.firmware})
    yield from check_board(reading, row, facts)
    if model:
        say("replay of a model, before the load")
        yield _run_replay(spec, tier, "replay-cold")
    segment = SegmentResult()
    left = seconds
    while left > 0:
        length = min(left, SEGMENT_SECONDS)
        result = seconds - left
        say(f"work for {length:.0f} s, {result:.0f} of {seconds:.0f} s done")
        with nullcontext() if spec.simulated else locks.hold_gpu(lock):
            part = _run_segment(spec, tier, length, round(result))
        resets = segment.samples[-1].resets or 0 if segment.samples else 0
        segment.samples += [_shift_sample(item, result, resets) for item in part.samples]
        segment.defects += part.defects
        segment.rounds += part.rounds
        segment.bytes_checked += part.bytes_checked
        segment.evictions += part.evictions
        segment.vram_bytes, segment.link_max = (
            part.vram_bytes or segment.vram_bytes,
            part.link_max or segment.link_max,
        )
        left -= length
        if any(defect.test == "hang" for defect in part.defects):
            break
    yield from _report_tests(segment)
    yield from judge_samples(segment.samples, row, segment.link_max)
    yield _report_evictions(segment)
    if model:
        say("replay of the model, with the board warm")
        yield _run_replay(spec, tier, "replay-warm")


def _read(spec: DeviceSpec, tier: str) -> tuple[BoardReading | None, str]:
    ended = run_in_child(partial(_read_here, spec, tier), 60.0)
    if ended.how == "returned" and isinstance(ended.value, BoardReading):
        return ended.value, ""
    lines = ended.text.strip().splitlines()
    return None, f"the board cannot be read: {lines[-1] if lines else ended.how}"


def _read_here(spec: DeviceSpec, tier: str) -> BoardReading:
    with ProbeContext(spec, tier, ProbeOptions()) as context:
        units, _ = count_compute_units(context)
        return read_board(context.driver, find_device_folder(context), units, context.render.query_firmware())


def find_device_folder(context: ProbeContext) -> str:
    """Return the board's device folder in sysfs."""
    return f"/sys/class/drm/{Path(context.render_path).name}/device"


def _run_segment(spec: DeviceSpec, tier: str, seconds: float, seed: int) -> SegmentResult:
    ended = run_in_child(partial(run_rounds, spec, tier, seconds, seed), seconds + GRACE_SECONDS)
    if ended.how == "returned" and isinstance(ended.value, SegmentResult):
        return ended.value
    lines = ended.text.strip().splitlines()
    return SegmentResult(defects=[WorkDefect("hang", lines[-1] if lines else f"its process {ended.how}")])


def run_rounds(spec: DeviceSpec, tier: str, seconds: float, seed: int) -> SegmentResult:
    """Run rounds for `seconds`, at least LEAST_ROUNDS, in this process."""
    result = SegmentResult()
    every = SIMULATED_SAMPLE_SECONDS if spec.simulated else SAMPLE_SECONDS
    with ProbeContext(spec, tier, ProbeOptions()) as context:
        log: KmdLog = SimulatedLog(context.driver) if spec.simulated else KmsgLog()
        folder = find_device_folder(context)
        reader = SensorReader(context.driver, folder, lambda: None if log.missing else log.lines())
        result.link_max = read_link(context.driver, folder, "max")
        started = time.monotonic()
        next_sample = 0.0
        result.samples.append(reader.take_sample(0.0))  # before the load: counters are compared with it
        work = AcceptWork(context, seed)
        result.vram_bytes = work.allocate()
        evictions = context.render.query_evictions()
        try:
            while not _has_ended(result) and (work.rounds < LEAST_ROUNDS or time.monotonic() - started < seconds):
                for _, defect in work.run_round():
                    if defect is not None:
                        result.defects.append(defect)
                elapsed = time.monotonic() - started
                if elapsed >= next_sample or work.rounds <= LEAST_ROUNDS:
                    result.samples.append(reader.take_sample(elapsed))
                    next_sample = elapsed + every
        finally:
            result.rounds, result.bytes_checked = work.rounds, work.bytes_checked
            if not _has_ended(result):
                result.evictions = context.render.query_evictions() - evictions
                work.free()
    return result


def _shift_sample(sample: SensorSample, seconds: float, resets: int) -> SensorSample:
    """Return a segment's sample as a sample of the whole run, whose earlier segments may have had `resets`."""
    count = None if sample.resets is None else sample.resets + resets
    return replace(sample, seconds=sample.seconds + seconds, resets=count)


def _has_ended(result: SegmentResult) -> bool:
    return any(defect.test == "hang" for defect in result.defects)


def _report_tests(segment: SegmentResult) -> Iterator[Result]:
    measure: dict[str, float] = {"rounds": segment.rounds}
    for test in TESTS:
        defects = [defect for defect in segment.defects if defect.test == test]
        more = {"gib_checked": round(segment.bytes_checked / (1 << 30), 2)} if test == "vram" else {}
        if not defects:
            ran = segment.rounds > 0
            reason = TITLES[test] if ran else "no round was completed"
            yield Result(test, "accept", "pass" if ran else "skip", reason=reason, measure={**measure, **more})
            continue
        first = defects[0]
        where = f", {first.where}" if first.where else ""
        bits = f", bits 0x{first.bits:08x}" if first.bits else ""
        cause, advice = _HANG if test == "hang" else _WRONG
        reason = f"{first.what}{where}{bits}"
        figures = {**measure, **more, "times": len(defects)}
        yield Result(test, "accept", "fail", reason=reason, cause=cause, advice=advice, measure=figures)


def _report_evictions(segment: SegmentResult) -> Result:
    """Report VRAM buffers that Linux moved to host memory. They may belong to any program, so this is not a
    defect.
    """
    name, measure = "vram-evictions", {"evictions": segment.evictions}
    if not segment.evictions:
        return Result(name, "accept", "pass", reason="no buffer was moved out of VRAM", measure=measure)
    return Result(
        name, "accept", "skip", measure=measure,
        reason=f"Linux moved {segment.evictions} buffers from VRAM to host memory: other programs use VRAM, and "
        "part of the memory test may have run in host memory",
        advice="end the other programs (`fuser -v /dev/kfd /dev/dri/renderD*`), then run it again",
    )  # fmt: skip


def _run_replay(spec: DeviceSpec, tier: str, name: str) -> Result:
    """Compare all layers and logits of a small model with T-CPU, bit for bit if the tier guarantees it."""
    with tempfile.TemporaryDirectory(prefix="zinc-rt-accept-") as folder:
        path = Path(folder) / "validate.json"
        device = "sim" if spec.simulated else "hw"
        words = ["validate", "--model", str(MODEL), "--tiers", f"{tier},t_cpu", "--device", device]
        command = [sys.executable, "-m", "zinc_rt.cli", *words, "--json", str(path)]
        ended = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)
        rows = read_results(path)
    bad = next((row for row in rows if row.status == "fail"), None)
    if bad is not None:
        return Result(name, "accept", "fail", reason=f"{bad.id}: {bad.reason}", repro=f"zinc-rt {' '.join(words)}")
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        return Result(name, "accept", "fail", reason=lines[-1] if lines else f"exit code {ended.returncode}")
    return Result(name, "accept", "pass", reason=f"{MODEL.stem}: {len(rows)} comparisons with T-CPU")


def list_shortcuts(spec: DeviceSpec, seconds: float, *, model: bool) -> list[str]:
    """Return the reasons why this run is not complete."""
    texts = []
    if spec.simulated:
        texts.append(f"simulated device: {SIMULATED_VRAM_BYTES >> 20} MiB of its VRAM, one compute unit")
        texts.append("sensors of a simulated device follow the load in virtual time, with plausible figures")
    if seconds < 3600:
        texts.append(f"{seconds:g} s of work instead of one hour")
    if not model:
        texts.append("no model was replayed")
    return texts
