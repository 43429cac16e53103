"""The shader engine without a device: NumPy arrays as memory, one call per launch. For tests and kernel
authors.

    device = EngineDevice(level="full")
    out = np.zeros(32, np.uint32)
    va = device.place(out, "out", initialised=False)
    findings = device.run(code, user_data=(va & 0xFFFFFFFF, va >> 32))
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from zinc_rt.isa.target import Target, make_default_target
from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.interfaces import CodePlace, Fault
from zinc_rt.sim.memory.initialised_bytes import InitialisedBytes
from zinc_rt.sim.shader.checks.finding_text import FindingText, WaveFinding
from zinc_rt.sim.shader.checks.watchpoints import LaneStore, StoreWatchpoint
from zinc_rt.sim.shader.emit.trace import TracedStep
from zinc_rt.sim.shader.launch_setup import FLOAT_MODE, LaunchSetup, place_ids
from zinc_rt.sim.shader.layout import EVERY_WAVE, TRACE, Checks
from zinc_rt.sim.shader.memory.ranges import PlacedArray, RangeTable, of_arrays
from zinc_rt.sim.shader.run.debugger import DebuggedLaunch, WaveDebugger
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.kernels import CompiledKernel, CompiledKernels, choose_variant
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads
from zinc_rt.sim.shader.run.unfinished import report_unfinished

FIRST_VA = 0x2_0000_0000
GAP_BYTES = 1 << 16  # never mapped, between two arrays
ROUND_SECONDS = 0.1
RUNS_KEPT = 64


@functools.cache
def kernels() -> CompiledKernels:
    """Return the kernels that this process has compiled so far."""
    return CompiledKernels(quick=True)


class EngineDevice:
    """An address space over NumPy arrays, without PM4 or queues.

    `level`: off, fast or full. `perturb`: a seed that moves inexact instructions by up to one ULP; 0: correctly
    rounded. `trace`: number of a wave in the launch; `traced` then returns the register writes of each of its
    instructions in the last run. EVERY_WAVE: of all waves, as `trace_records`, with `accessed`. `fuel`:
    approximate number of instructions per thread after which a launch counts as endless. `target`: the chip; None:
    DEFAULT_ARCH. `debugger` stops the waves. `reverse_lanes`: see Checks.
    """

    def __init__(
        self,
        *,
        level: str = "full",
        perturb: int = 0,
        threads: int = 1,
        fuel: int | None = None,
        trace: int | None = None,
        target: Target | None = None,
        debugger: WaveDebugger | None = None,
        reverse_lanes: bool = False,
    ) -> None:
        self.target = target or make_default_target()
        self.checks = Checks(
            level,
            perturb=bool(perturb),
            trace=trace is not None,
            debug=debugger is not None,
            reverse_lanes=reverse_lanes,
        )
        self._trace, self._debugger = trace, debugger
        self.traced: list[str] = []
        self.steps: list[TracedStep] = []  # of it, as data
        self.trace_records: tuple[np.ndarray, int] = (np.zeros(0, TRACE.dtype), 0)  # and the number dropped
        self.accessed: dict[int, set[tuple[int, int]]] = {}  # the arrays, by address, of each memory instruction
        self._watchpoint: StoreWatchpoint | None = None
        self.watchpoint_hits: list[LaneStore] = []
        self._seed, self._fuel = perturb, fuel
        self._wave_threads = WaveThreads(threads if trace is None else 1)
        self._placed: list[PlacedArray] = []
        self._announced: list[tuple[int, int, str]] = []
        self._table: RangeTable | None = None
        self._next_va = FIRST_VA
        self._codes: dict[bytes, int] = {}
        self._serials = itertools.count(1)
        self._runs: dict[tuple[LaunchSetup, bytes, int], LaunchRun] = {}

    def place(self, array: np.ndarray, name: str = "", *, initialised: bool = True, write: bool = True) -> int:
        """Map a live view of the array's bytes and return its VA (64 KiB aligned). Results are written to the
        array itself.

        Raises ValueError unless the array is C-contiguous and, with `write`, writable. The device keeps a
        reference to the array.
        """
        if not array.flags.c_contiguous:
            raise ValueError(f"{name or 'array'}: expected C-contiguous memory")
        if write and not array.flags.writeable:
            raise ValueError(f"{name or 'array'} is read-only: pass write=False when placing it")
        va = self._next_va
        self._next_va += round_up(max(array.nbytes, 1), PAGE_BYTES) + GAP_BYTES
        self._next_va = round_up(self._next_va, GAP_BYTES)
        written = None if initialised else InitialisedBytes(array.nbytes)
        self._placed.append(PlacedArray(va, array, name or f"array {len(self._placed)}", write, written))
        self._table = None
        return va

    def set_watchpoint(self, va: int, size_bytes: int) -> None:
        """Set a watchpoint: from the next run on `watchpoint_hits` returns the last stores to these bytes. Size
        0 removes it.
        """
        self._watchpoint = StoreWatchpoint(va, size_bytes) if size_bytes else None
        self.watchpoint_hits = []

    def announce(self, va: int, size_bytes: int, name: str) -> None:
        """Announce a suballocation, for bounds checks and messages."""
        self._announced.append((va, va + size_bytes, name))
        self._table = None

    def describe(self, va: int) -> str:
        for start, end, name in reversed(self._announced):
            if start <= va < end:
                return f"{name}+0x{va - start:x}"
        for item in self._placed:
            if item.va <= va < item.va + item.array.nbytes:
                return f"{item.name}+0x{va - item.va:x}"
            beyond = va - item.va - item.array.nbytes
            if 0 <= beyond < GAP_BYTES:
                return f"{beyond} bytes beyond the end of {item.name}"
        return "unmapped"

    def run(
        self,
        code: bytes,
        *,
        groups: Sequence[int] = (1, 1, 1),
        threads: Sequence[int] = (32, 1, 1),
        wave: int = 32,
        user_data: Sequence[int] = (),
        lds_bytes: int = 0,
        scratch_bytes: int = 0,
        vgprs: int = 256,
        sgprs: int = 106,
        entry: int = 0,
        mode: int = FLOAT_MODE,
        ids_enabled: Sequence[int] = (1, 1, 1),
        name: str = "kernel",
    ) -> list[WaveFinding]:
        """Run the grid to completion and return the findings. `scratch_bytes` is per lane. `mode`: FLOAT_MODE
        of PGM_RSRC1, and on gfx11 DX10_CLAMP and IEEE of MODE. `ids_enabled`: whether there is a workgroup id of
        each axis; on gfx11 they follow the user data in SGPRs.

        Raises Fault, with the position, for unmapped addresses. An unsupported instruction, an s_trap and
        exhausted fuel end the run and are reported as findings.
        """
        sizes, enabled = _three(threads), _three(ids_enabled)
        id_sgprs = None
        if not self.target.rules.ids_in_ttmp:
            id_sgprs = place_ids(len(user_data), sum(bool(on) << axis for axis, on in enumerate(enabled)))
        launch = LaunchSetup(
            _three(groups), sizes, sizes, wave, tuple(int(user_item) & 0xFFFFFFFF for user_item in user_data),
            vgprs=vgprs, sgprs=sgprs, lds_bytes=lds_bytes, scratch_bytes=scratch_bytes, mode=mode,
            ids_enabled=enabled, id_sgprs=id_sgprs,
        )  # fmt: skip
        if not launch.group_count:
            return []
        program_va = self._code_va(bytes(code), name)
        run = self._run_of(launch, code, entry)
        if self._table is None:
            bounds = self.checks.fast
            self._table = of_arrays(self._placed, bounds=bounds, races=self.checks.full, announced=self._announced)
        run.watchpoint = self._watchpoint
        if self._debugger is not None:
            self._debugger.begins(DebuggedLaunch(run.kernel, launch, self._texts(run, name)))
        run.begin(self._table, program_va, next(self._serials))
        stop = Stop.FUEL
        left = self._fuel
        while stop is Stop.FUEL and (left is None or left > 0):
            stop = run.advance(ROUND_SECONDS, left)
            left = None if left is None else 0
        self._table.refresh()
        if self._trace == EVERY_WAVE:
            self.trace_records, self.accessed = run.trace_records(), run.accessed_ranges()
        elif self._trace is not None:
            self.traced, self.steps = run.trace(), run.steps()
        if self._watchpoint is not None:
            self.watchpoint_hits = self._watchpoint.list_hits(run.kernel.sites)
        return self._findings_of(run, run.kernel, name, stop)

    def _code_va(self, code: bytes, name: str) -> int:
        """Return the kernel's address: it may read tables next to its code, by s_getpc_b64."""
        if code not in self._codes:
            self._codes[code] = self.place(np.frombuffer(code, np.uint8), f"code of {name}", write=False)
        return self._codes[code]

    def _run_of(self, launch: LaunchSetup, code: bytes, entry: int) -> LaunchRun:
        """Return the launch run, cached for repeated launches."""
        key = (launch, code, entry)
        run = self._runs.get(key)
        if run is None or kernels().is_outdated(run.kernel):
            kernel = kernels().of(choose_variant(launch, self.target, code, self.checks, entry))
            if len(self._runs) >= RUNS_KEPT:
                self._runs.clear()
            run = self._runs[key] = LaunchRun(
                kernel,
                launch,
                self._wave_threads,
                mode=launch.mode,
                seed=self._seed,
                traced=self._trace or 0,
                debugger=self._debugger,
            )
        return run

    def _texts(self, run: LaunchRun, name: str) -> FindingText:
        variant, launch = run.kernel.variant, run.launch
        return FindingText(
            name, variant.code, variant.target, run.kernel.sites, launch.groups, launch.start, self.describe,
            entry=variant.entry,
        )  # fmt: skip

    def _findings_of(self, run: LaunchRun, kernel: CompiledKernel, name: str, stop: Stop) -> list[WaveFinding]:
        texts = self._texts(run, name)
        sources = list(texts.format_records(*run.findings()))
        if stop is Stop.FAULT:
            assert run.ended is not None
            fault = run.fault()
            message, _ = texts.format_fault(run.ended.state, run.ended.context, fault.why)
            raise Fault(fault.va, fault.access, fault.why, message.sentence)
        if stop in (Stop.ILLEGAL, Stop.HALT):
            sources.append(texts.format_wave(*run.stopped_at()))
        elif stop is not Stop.DONE:
            rule = "barrier-stuck" if stop is Stop.STUCK else "out-of-fuel"
            standing = list(report_unfinished(run.standing(), kernel.variant, texts, rule))
            sources += standing or [WaveFinding(rule, f"{name}: {rule}", CodePlace(name, 0))]
        return sources


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return int(x), int(y), int(z)
