"""Tier t_cpu_native: execute a dispatch plan in machine code, one call per step. Results match the oracle bit
for bit."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from zinc_rt.backends.base import Device, Submissions
from zinc_rt.backends.cpu import tasks
from zinc_rt.backends.cpu.host_memory import HostMemory
from zinc_rt.backends.cpu.library import Library, build_library
from zinc_rt.backends.cpu.oracle import RunStopped
from zinc_rt.backends.cpu.read_ahead import ReadAhead
from zinc_rt.backends.cpu.threads import HelperThreads, check_affinity, choose_default_threads
from zinc_rt.backends.spec import Availability, BackendSpec, Host, OnDevice, Opening
from zinc_rt.exec import Buffer, HostExecutor, HostFence, Stream
from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.host.machine import read_processor_name
from zinc_rt.kernels.native.table import KERNELS, ORDERINGS
from zinc_rt.lower import LoweredGraph

# Why a kernel refused: task.h's numbers.
REFUSALS = {
    1: "a token is outside the vocabulary",
    2: "a position is outside the context",
    3: "a slot is outside its table",
    4: "the page table names a page outside the cache",
    5: "a row is outside its tensor",
    6: "an expert is outside its tensor",
    7: "an entry is outside its table, or named twice in one step",
}


def probe(host: Host) -> Availability:
    """Probe the tier. The first call on a machine compiles the kernels, because only a test shows whether they
    run.
    """
    try:
        loaded = build_library(_read_compiler_setting(), report=_print_note)
    except UnsupportedError as error:
        devices = (OnDevice("cpu", False, error.message, error.next),)
        return Availability(False, error.message, error.next, devices=devices)
    text = f"machine code for this CPU ({loaded.level}), {_format_threads(choose_default_threads())}"
    text = "; ".join([text, *loaded.notes])
    return Availability(True, text, devices=(OnDevice("cpu", True, text),))


def open(opening: Opening) -> NativeBackend:
    """Open the backend. Options: `threads`, by default the number of physical cores; `affinity`, one CPU per
    thread."""
    if opening.ordering not in ORDERINGS:
        raise UnsupportedError(
            f"{opening.spec.tier} supports {', '.join(sorted(ORDERINGS))}, not {opening.ordering}",
            next="use t_cpu",
        )
    affinity = tuple(opening.options.get("affinity") or ())
    check_affinity(affinity)
    return NativeBackend(
        opening.spec,
        opening.ordering,
        build_library(_read_compiler_setting(), report=_print_note),
        threads=opening.options.get("threads") or len(affinity) or choose_default_threads(),
        affinity=affinity,
    )


class NativeBackend(HostMemory):
    """The backend of compiled kernels. `splitting` is for tests: results do not depend on how work is split."""

    instrument: None = None

    def __init__(
        self,
        spec: BackendSpec,
        ordering: str,
        code: Library,
        *,
        threads: int,
        affinity: tuple[int, ...] = (),
        splitting: tasks.TaskSplitting = tasks.TaskSplitting(),  # noqa: B008 - frozen
        read_ahead: ReadAhead | None = None,
    ) -> None:
        super().__init__(HostExecutor(spec.tier))
        self.spec = spec
        self.kernels = KERNELS
        self.ordering = ordering
        self.device = Device(name=read_processor_name(), arch=f"{platform.machine()} ({code.level})")
        self.submissions = Submissions()
        self.library = code
        self._splitting = splitting
        self._read_ahead = read_ahead or ReadAhead()
        self._helpers = HelperThreads(code.handle, threads, affinity)

    def build(self, lowered: LoweredGraph, buffers: Mapping[str, Buffer]) -> tasks.NativeExecutable:
        executable = tasks.build(lowered, buffers, self.library.address, self._splitting)
        return replace(
            executable, followed=self._read_ahead.add(lowered, buffers, [node for node, _ in executable.tasks])
        )

    def unload(self, executable: tasks.NativeExecutable) -> None:
        self._helpers.settle()

    def submit(self, executable: tasks.NativeExecutable, stream: Stream) -> HostFence:
        self.submissions.fast += 1
        return self._executor.submit(partial(self._run, executable), stream)

    def close(self) -> None:
        self._helpers.stop()
        self._executor.close()
        self._helpers.close()

    def _run(self, executable: tasks.NativeExecutable) -> None:
        with self._read_ahead.follow(executable.followed, executable.running):
            start = time.monotonic_ns()
            result = self._helpers.run(executable.struct)
            executable.host_ns[:] = start, time.monotonic_ns()
        if result == -1:
            raise RunStopped(f"{self.spec.tier} was closed before this replay ended")
        if result:
            reason, task = result >> 32, result & 0xFFFFFFFF
            raise InputError(f"{executable.tasks[task][0]!r}: {REFUSALS.get(reason, f'refused, code {reason}')}")


def _read_compiler_setting() -> str:
    """Return the compiler named in the environment. Every command has already checked it; it applies to the whole
    process.
    """
    return os.environ.get("ZINC_RT_CC", "").strip()


def _format_threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"


def _print_note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
