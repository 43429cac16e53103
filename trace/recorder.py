"""Record the operations of an engine in a .zlog: `with record(engine, path) as log: ...`."""

from __future__ import annotations

import hashlib
import math
import shlex
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zinc_rt.engine.engine import Engine
from zinc_rt.engine.resident import NUMPY_DTYPES, Counts, Variant
from zinc_rt.exec import Buffer, Fence, Graph, Observer, Stream
from zinc_rt.exec.graph import InFlight, ShapeKey
from zinc_rt.host.errors import UsageError, error_first_line
from zinc_rt.host.version import __version__, digest_code
from zinc_rt.ir.graph import SYMBOLS, OpGraph
from zinc_rt.ir.serial import to_bytes
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.gguf import digest_model
from zinc_rt.model.sample_graph import DELIVERED
from zinc_rt.sched.plan import StepPlan
from zinc_rt.trace import records
from zinc_rt.trace.plans import describe_plan
from zinc_rt.trace.records import LEVELS, Level
from zinc_rt.trace.weights import compute_digests, weight_bytes
from zinc_rt.trace.writer import LogWriter, print_warning

INLINE_BYTES = 256  # longer writes are blobs: a page table that did not change costs one record's length
COUNTS = "step.counts"
NO_COUNTS = (0,) * len(SYMBOLS)
Place = tuple[int, ShapeKey, str]  # graph, key, allocation


@contextmanager
def record(
    engine: Engine,
    path: str | Path | None = None,
    level: Level = "inputs",
    *,
    embed_weights: bool = False,
    times: bool = False,
    argv: Sequence[str] = (),
    warn: Callable[[str], None] = print_warning,
) -> Iterator[Recorder]:
    """Record every step inside the block in `path` (docs/zlog.md); None: a temporary file owned by the
    recorder.

    `digest_model`: digests of inputs and outputs. `inputs`: everything that a replay needs. `full`: also the
    bytes of every node's result. `embed_weights`: include the weights, so that the log replays without its
    model. `times`: also the begin and end of each dispatch; dispatches then run one at a time.

    Raises UsageError for an engine that is already being recorded, or whose open sequences have tokens
    that a replay would lack; OutputError if the file cannot be created.
    """
    folder = None
    if path is None:
        folder = TemporaryDirectory(prefix="zinc-rt-")
        path = Path(folder.name) / "run.zlog"
    recorder = Recorder(engine, path, level, embed_weights=embed_weights, times=times, argv=argv, warn=warn)
    recorder.folder = folder
    engine.variants.timed = times
    engine.variants.tap_always = level == "full"
    before = engine.variants.observers  # they go on being told, and first
    engine.variants.observe((*before, recorder))
    engine.runner.planned = recorder.planned
    try:
        yield recorder
    except BaseException as error:
        recorder.record_error(error)
        raise
    finally:
        engine.variants.observe(before)
        engine.runner.planned = None
        engine.variants.tap_always = engine.variants.timed = False
        recorder.close()


def describe_run(engine: Engine, level: Level, argv: Sequence[str]) -> dict[str, Any]:
    """Return the description of the run that is written before the first record."""
    gguf, limits = engine.model.gguf, engine.limits
    return {
        "version": __version__,
        "code": digest_code(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "level": level,
        "argv": list(argv),
        "tier": engine.backend.spec.tier,
        "device": asdict(engine.backend.device),
        "ordering": engine.backend.ordering,
        **({"prefill_ordering": prefill} if (prefill := engine.variants.prefill_ordering) else {}),
        "ctx": limits.ctx,
        "limits": asdict(limits),
        "delta_form": engine.variants.delta_form,
        "settings": asdict(engine.settings),
        "model": {
            "path": str(gguf.path.resolve()),
            "digest": digest_model(gguf),
            "size": gguf.file_bytes,
            "mtime_ns": gguf.mtime_ns,
            "architecture": gguf.architecture,
        },
    }


class Recorder(Observer):
    """The observer that `record` attaches. `steps`: number of submitted steps, of which `kept` are in the file;
    `failed` is the reason if recording stopped; `note` adds an event of the caller.
    """

    def __init__(
        self,
        engine: Engine,
        path: str | Path,
        level: Level,
        *,
        embed_weights: bool,
        times: bool = False,
        argv: Sequence[str],
        warn: Callable[[str], None],
    ) -> None:
        if level not in LEVELS:
            raise UsageError(f"unknown level {level!r}", next=f"one of {', '.join(LEVELS)}")
        if any(isinstance(observer, Recorder) for observer in engine.variants.observers):
            raise UsageError("this engine is already being recorded")
        started = [sequence.slot for sequence in engine.sequences if sequence.position]
        if started and level != "digest":
            raise UsageError(
                f"slot {started[0]} contains tokens from before the recording, which a replay would lack",
                next="start recording before the sequence, or use level digest",
            )
        self.path = Path(path)
        self.level = level
        self.steps = 0
        self.kept = 0
        self.folder: TemporaryDirectory[str] | None = None
        self._engine = engine
        self._embed = embed_weights
        self._warn = warn
        self._clock = time.monotonic()
        self._graphs: dict[int, int] = {}  # id(graph) -> number
        self._kept: list[Graph] = []  # so that no id comes back
        self._variants: dict[tuple[int, ShapeKey], Variant] = {}
        self._weights: set[str] = set()
        self._kernels: set[str] = set()
        self._places: dict[int, tuple[Graph, ShapeKey, str]] = {}  # id(buffer) -> where it was bound last
        self._names: dict[Place, tuple[list[int], list[str]]] = {}
        self._counts: dict[tuple[int, ShapeKey], tuple[int, ...]] = {}
        self._running: dict[int, tuple[int, int, ShapeKey]] = {}  # id(fence) -> step, graph, key
        self._digests: dict[str, str] | None = None
        self._warned = False
        meta = describe_run(engine, level, argv) | ({"times": True} if times else {})
        self.writer = LogWriter(path, meta, warn=warn)

    def __fspath__(self) -> str:
        """Return the log's path, so that a recorder can be used as a path."""
        return str(self.path)

    @property
    def size_bytes(self) -> int:
        return self.writer.size_bytes

    @property
    def failed(self) -> str:
        return self.writer.failed

    @property
    def replay_command(self) -> str:
        return f"zinc-rt-replay {shlex.quote(str(self.path))}"

    def note(self, name: str, detail: str = "") -> None:
        self.writer.write(records.EventRecord(name, detail, self._elapsed_seconds()))

    def planned(self, plan: StepPlan, slots: np.ndarray) -> None:
        """Write a scheduler's plan. `slots`: their records, RECORD [slots]."""
        self.note(records.PLAN, describe_plan(plan, slots))

    def close(self) -> None:
        self.writer.close()
        if not self.size_bytes:  # the file is gone
            self.kept = 0

    # --- exec.Observer ---

    def bound(self, graph: Graph, port: str, buffer: Buffer) -> None:
        allocation, _, key = port.rpartition("@")
        self._places[id(buffer)] = (graph, tuple(int(part) for part in key.split(",")), allocation)

    def wrote(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        graph, key, allocation = self._places[id(buffer)]
        number = self._define_graph(graph, key)
        name, start = self._buffer_name(number, key, allocation, offset_bytes)
        if name == COUNTS:
            self._counts[number, key] = decode_counts(data)
        offset = offset_bytes - start
        placed = self._variants[number, key].plan.placements[name].size_bytes
        parts: tuple[records.WrittenPart, ...] = ()
        if offset + data.nbytes > placed:
            parts, data = self._split_write(number, key, allocation, offset_bytes, data)
            name, offset = parts[0].buffer, parts[0].offset_bytes
        wrote = partial(records.Wrote, number, key, name, offset, data.nbytes, parts=parts)
        if self.level == "digest":
            self.writer.write(wrote() if parts else wrote(sha256=hashlib.sha256(data).hexdigest()), hold=True)
        elif data.nbytes > INLINE_BYTES:
            self.writer.write(wrote(blob=self.writer.write_blob(data)))
        else:
            self.writer.write(wrote(data=bytes(data)))

    def _split_write(
        self, number: int, key: ShapeKey, allocation: str, offset_bytes: int, data: memoryview
    ) -> tuple[tuple[records.WrittenPart, ...], memoryview]:
        """Return the buffers that a write covers, limited by the step's counts, and their bytes, concatenated."""
        variant, counts = self._variants[number, key], self._counts.get((number, key), NO_COUNTS)
        parts, pieces = [], []
        _, names = self._names[number, key, allocation]
        for name in names:
            location, spec = variant.plan.placements[name], variant.graph.buffers[name]
            size_bytes = NUMPY_DTYPES[spec.dtype].itemsize * math.prod(variant.shape(name, counts))
            begin = location.offset_bytes - offset_bytes
            if size_bytes and begin >= 0 and begin + size_bytes <= data.nbytes:
                piece = data[begin : begin + size_bytes]
                sha256 = hashlib.sha256(piece).hexdigest() if self.level == "digest" else ""
                parts.append(records.WrittenPart(name, 0, size_bytes, sha256))
                pieces.append(piece)
        return tuple(parts), memoryview(b"".join(pieces))

    def replayed(self, graph: Graph, key: ShapeKey, stream: Stream, fence: Fence) -> None:
        number = self._define_graph(graph, key)
        counts = self._counts.get((number, key), NO_COUNTS)
        self._running[id(fence)] = (self.steps, number, key)
        self.writer.write(records.Replayed(self.steps, number, key, stream.name, counts, self._elapsed_seconds()))
        self.steps += 1
        if not self.failed:
            self.kept = self.steps

    def retired(self, fence: Fence, seconds: float) -> None:
        running = self._running.pop(id(fence), None)
        if running is None:  # submitted before recording began
            return
        step, number, key = running
        index = self._elapsed_seconds()
        variant, counts = self._variants[number, key], self._counts.get((number, key), NO_COUNTS)
        try:
            self._record_outputs(step, variant, counts)
        except InFlight as error:  # the next step uses the same bytes already
            self.note("output-missed", f"step {step}: {error_first_line(error)}")
        if not variant.replays.busy():
            self._record_times(step, variant, index)
        self.writer.write(records.Retired(step, seconds, index))

    def _record_times(self, step: int, variant: Variant, at: float) -> None:
        """Record the times of a step that ended at `at`, if its program is timed."""
        times = variant.built.times()
        if not times.dispatches:
            return
        first = times.dispatches[0].began_ns
        start = first / 1e9 - self._clock if times.host_time else at - times.span_ns / 1e9
        kernels = {
            kernel: location for location, kernel in enumerate(dict.fromkeys(d.kernel for d in times.dispatches))
        }
        nodes = {id(node): location for location, node in enumerate(variant.made_of.nodes)}
        data = b"".join(
            records.TIMED.pack(
                nodes.get(id(dispatch.node), -1),
                kernels[dispatch.kernel],
                dispatch.began_ns - first,
                dispatch.ended_ns - first,
            )
            for dispatch in times.dispatches
        )
        kept = records.TimesRecord(step, times.clock, times.simulated, start, tuple(kernels), data)
        self.writer.write(kept, hold=True)

    def fault(self, report: BaseException) -> None:
        step = min((step for step, _, _ in self._running.values()), default=self.steps - 1)
        bundle = getattr(report, "bundle", None)
        self.writer.write(records.FaultRecord(step, str(report), str(bundle or ""), self._elapsed_seconds()))
        self._warn_incomplete(step)

    # --- inside ---

    def record_error(self, error: BaseException) -> None:
        """Record that the block ended with `error`, and the command that replays it."""
        if not self._warned:
            text = f"{type(error).__name__}: {error}"
            self.writer.write(records.FaultRecord(self.steps - 1, text, "", self._elapsed_seconds()))
            self._warn_incomplete(self.steps - 1)

    def _warn_incomplete(self, step: int) -> None:
        self._warned = True
        step = min(step, self.kept - 1)
        if step < 0:
            self._warn(f"{self.path}: the run ended before its first step, nothing is recorded")
        elif self.level == "digest":
            self._warn(f"recorded up to step {step}: zinc-rt-replay --info {shlex.quote(str(self.path))}")
        else:
            self._warn(f"recorded up to step {step}; replay it with: {self.replay_command} --until {step}")

    def _elapsed_seconds(self) -> float:
        return time.monotonic() - self._clock

    def _define_graph(self, graph: Graph, key: ShapeKey) -> int:
        """Return the graph's number. At first use, write the graph's definition to the log."""
        number = self._graphs.get(id(graph))
        if number is not None and (number, key) in self._variants:
            return number
        variant = self._engine.variants.find(graph, key)
        if number is None:
            number = self._graphs[id(graph)] = len(self._kept)
            self._kept.append(graph)
            if self.level != "digest":
                self._record_weights(variant)
            ir = self.writer.write_blob(to_bytes(variant.graph))
            plan = variant.plan
            self.writer.write(records.GraphCreated(number, variant.graph.name, variant.graph.stage, ir, plan.tap))
        if self.level != "digest":
            self._record_kernels(variant)
        self._variants[number, key] = variant
        self.writer.write(records.VariantAdded(number, key))
        return number

    def _record_kernels(self, variant: Variant) -> None:
        backend = self._engine.backend
        for name, code in variant.built.kernels().items():
            if name not in self._kernels:
                self._kernels.add(name)
                blob = self.writer.write_blob(code)
                self.writer.write(records.KernelRecord(name, backend.device.arch, blob, blob))

    def _record_weights(self, variant: Variant) -> None:
        if next(variant.graph.by_role("weight", "constant"), None) is None:
            return
        model = self._engine.variants.model(variant.graph.stage)
        if self._digests is None:
            self._digests = compute_digests(model.gguf, model.weights)
        for spec in variant.graph.by_role("weight", "constant"):
            if spec.name in self._weights:
                continue
            self._weights.add(spec.name)
            constant = spec.role == "constant"
            array = model.constants.get(spec.name) if constant else None
            weight = model.weights[spec.name] if array is None else Weight("f32", array.shape, array)
            if constant or self._embed:
                sha256 = blob = self.writer.write_blob(weight_bytes(weight).data)
            else:
                if spec.name not in self._digests:
                    self._digests |= compute_digests(model.gguf, {spec.name: weight})
                sha256, blob = self._digests[spec.name], ""
            self.writer.write(records.WeightRecord(spec.name, weight.dtype, weight.shape, sha256, blob))

    def _buffer_name(self, number: int, key: ShapeKey, allocation: str, offset: int) -> tuple[str, int]:
        """Return the buffer at that byte of an allocation, and its start."""
        location = (number, key, allocation)
        if location not in self._names:
            placements = self._variants[number, key].plan.placements
            placed = sorted((p.offset_bytes, name) for name, p in placements.items() if p.allocation == allocation)
            self._names[location] = [start for start, _ in placed], [name for _, name in placed]
        starts, names = self._names[location]
        index = bisect_right(starts, offset) - 1
        return names[index], starts[index]

    def _record_outputs(self, step: int, variant: Variant, counts: Counts) -> None:
        if self.level != "full":
            for name in list_outputs(variant.graph):
                self._record_output(step, variant, name, counts)
            return
        kept = {*list_outputs(variant.graph), *(spec.name for spec in variant.graph.by_role("activation"))}
        for index, node in enumerate(variant.made_of.nodes):
            for name in node.outputs:
                if name in kept:
                    self._record_output(step, variant, name, counts, node=index, label=node.label)

    def _record_output(
        self, step: int, variant: Variant, name: str, counts: Counts, *, node: int = -1, label: str = ""
    ) -> None:
        value = np.ascontiguousarray(variant.read(name, counts))
        content = value.reshape(-1).view(np.uint8).data
        blob = self.writer.write_blob(content) if self.level == "full" else ""
        sha256 = blob or hashlib.sha256(content).hexdigest()
        dtype = variant.graph.buffers[name].dtype
        output = records.Output(step, name, dtype, value.shape, sha256, node, label, blob)
        self.writer.write(output, hold=True)  # until the step's Retired


def list_outputs(graph: OpGraph) -> list[str]:
    """Return the buffers of a graph that the host reads after a step: its outputs, and the output ring."""
    return [
        spec.name for spec in graph.by_role("output", "table") if spec.role == "output" or spec.name in DELIVERED
    ]


def decode_counts(data: memoryview) -> tuple[int, ...]:
    """Return the counts contained in the bytes written to step.counts, or to a step block, which begins
    with them."""
    return tuple(int(count) for count in np.frombuffer(data[: 4 * len(SYMBOLS)], np.int32))
