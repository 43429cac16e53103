"""The environment of structural criteria: engines on one device, opened once, and the queues they create."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.backends.base import Device
from zinc_rt.cli.observer import CommandObserver
from zinc_rt.cli.report import Result
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.exec import Fence, Graph, Observer, Stream
from zinc_rt.golden.embedded import FOLDER, list_embedded_pairs
from zinc_rt.host.errors import ZincError
from zinc_rt.host.settings import Settings
from zinc_rt.kmd.transport import Queue
from zinc_rt.model.gguf import GGUFFile, read_gguf

DEFAULT_MODEL = FOLDER / "qwen3-q.gguf"
ORDERING = "canonical-1"


class CannotMeasure(ZincError):
    """The criterion cannot be measured here. It is BLOCKED, with this as the reason."""

    exit_code = 77


@dataclass(frozen=True, slots=True)
class Measurement:
    """`value` is in the criterion's unit; `how` is a sentence; `detail` are the parts."""

    value: float
    how: str
    detail: Mapping[str, Any] = field(default_factory=dict)


def make_prompt(vocab: int, count: int) -> list[int]:
    """Return token ids for any vocabulary, without equal neighbours."""
    return [(7 * index + 1) % vocab for index in range(count)]


@dataclass(slots=True)
class CountingObserver(Observer):
    """Counts the host's requests to the device: replays, their variants, and every queue created."""

    replays: int = 0
    ran: set[tuple[Graph, tuple[int, ...]]] = field(default_factory=set)  # executable graph and key
    streams: list[Stream] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)

    def replayed(self, graph: Graph, key: tuple[int, ...], stream: Stream, fence: Fence) -> None:
        self.replays += 1
        self.ran.add((graph, key))
        if stream not in self.streams:
            self.streams.append(stream)

    @property
    def published_dw(self) -> int:
        """Return the dwords published to all queues so far: the sum of their write pointers, read from memory."""
        return sum(ctypes.c_uint64.from_address(queue.wptr.host.address).value for queue in self.queues)


@dataclass(slots=True)
class LabEngine:
    """One engine and its counters."""

    engine: Engine
    counted: CountingObserver

    @property
    def submissions(self) -> int:
        """Return the number of fences of every stream with replays, as counted by its ring; without a ring, the
        number of replays.
        """
        ring = getattr(self.engine.backend, "ring", None)
        if ring is None:
            return self.counted.replays
        return sum(ring(stream).timeline.submitted for stream in self.counted.streams)


class Lab:
    """`device` is auto, hw, cpu or sim, as for every command. Without an AMD GPU, auto simulates one."""

    def __init__(
        self,
        *,
        device: str = "auto",
        model: Path | None = None,
        settings: Settings | None = None,
        observer: CommandObserver | None = None,
    ) -> None:
        self.device_option = device
        self.model = model or DEFAULT_MODEL
        self.settings = settings or Settings()
        self.observer = observer or CommandObserver()
        self.devices: dict[str, Device] = {}  # by tier, of those that were opened
        self._stack = ExitStack()
        self._engines: dict[tuple[str, Path, int, str], LabEngine] = {}
        self._files: dict[Path, GGUFFile] = {}
        self._validated: dict[tuple[str, ...], list[Result]] = {}

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engines.clear()
        self._stack.close()

    def folder(self) -> Path:
        """Return a folder for files that are deleted with the lab."""
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="zinc-rt-lab-")))

    def read_model(self, path: Path | None = None) -> GGUFFile:
        path = path or self.model
        if path not in self._files:
            self._files[path] = read_gguf(path)
        return self._files[path]

    def models(self, which: str = "") -> list[Path]:
        """Return the model under test, or with "embedded" the shipped ones, if none was named."""
        if which == "embedded" and self.model == DEFAULT_MODEL:
            return [pair.model for pair in list_embedded_pairs()]
        return [self.model]

    def open_engine(
        self, tier: str, *, model: Path | None = None, slots: int = 1, prefill_ordering: str = ""
    ) -> LabEngine:
        """Return an engine on that tier. Raise CannotMeasure with the reason if there is no such tier."""
        key = (tier, model or self.model, slots, prefill_ordering)
        if key not in self._engines:
            try:
                choice = choose_tier(tier, self.device_option, simulate=True, sanitizer="fast")
                backend = open_backend(choice, ORDERING)
            except ZincError as error:
                raise CannotMeasure(str(error).partition("\n")[0]) from error
            self._stack.callback(backend.close)
            counted = CountingObserver()
            side: Any = getattr(backend, "side", None)
            if side is not None:
                side.create_queue = partial(_record_queue, side.create_queue, counted.queues)
            engine = Engine(
                self.read_model(key[1]),
                backend,
                slots=slots,
                options=EngineOptions(
                    observers=(counted,), settings=self.settings, prefill_ordering=prefill_ordering
                ),
            )
            self.devices[tier] = backend.device
            self._engines[key] = LabEngine(engine, counted)
        return self._engines[key]

    def run_validation(self, tiers: tuple[str, ...], model: Path | None = None) -> list[Result]:
        """Return the results of zinc-rt validate for these tiers. Raise CannotMeasure if it cannot run them."""
        from zinc_rt.validate.command import parser
        from zinc_rt.validate.prepare import prepare_jobs
        from zinc_rt.validate.run import validate
        from zinc_rt.validate.runner import ValidationRunner

        path = model or self.model
        key = (*tiers, str(path))
        if key not in self._validated:
            line = ["--model", str(path), "--tiers", ",".join(tiers), "--device", self.device_option]
            try:
                arguments = parser().parse_args(line)
                arguments.observer = self.observer
                jobs = prepare_jobs(arguments, self.settings)
            except ZincError as error:
                raise CannotMeasure(str(error).partition("\n")[0]) from error
            results: list[Result] = []
            for job in jobs:
                with ValidationRunner(job) as runner:
                    results += [check.reported() for check in validate(runner)]
                    for spec in job.tiers:
                        self.devices.setdefault(spec.text, runner.engine(spec).backend.device)
            self._validated[key] = results
        return self._validated[key]

    def describe_device(self) -> dict[str, Any]:
        """Describe the device of the GPU tiers, else the available one; `simulated` is true if any part of it was
        simulated.
        """
        named = [self.devices[tier] for tier in sorted(self.devices) if tier != registry.ORACLE]
        device = (named or list(self.devices.values()) or [Device("none", "")])[0]
        return {
            "name": device.name,
            "arch": device.arch,
            "simulated": any(device.simulated for device in self.devices.values()),
            "profile": device.profile,
            "kernel": device.kernel,
            "firmware": device.firmware,
        }


def _record_queue(create: Any, queues: list[Queue], **options: Any) -> Queue:
    queue: Queue = create(**options)
    queues.append(queue)
    return queue
