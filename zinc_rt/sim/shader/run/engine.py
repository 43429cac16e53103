"""The shader engine of a simulated gfx12 device: implements sim.shader_engine.ShaderEngine with compiled waves."""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary, ref

from zinc_rt.isa import Target
from zinc_rt.isa.wave_rules import WaveRules
from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.sim.consulted import Coverage
from zinc_rt.sim.defects import LaneDefect
from zinc_rt.sim.executions import KernelExecution
from zinc_rt.sim.facts import DEFAULT, Behaviour
from zinc_rt.sim.interfaces import AddressSpace, CodePlace, DevicePageFault, Fault
from zinc_rt.sim.memory.vm import GpuVm, VmSpan
from zinc_rt.sim.shader.checks.finding_text import FindingText, WaveFinding, disassemble_at, group_id
from zinc_rt.sim.shader.checks.recent_stores import SCALAR, VECTOR, RecentStores
from zinc_rt.sim.shader.checks.static_lint import find_static_findings
from zinc_rt.sim.shader.checks.watchpoints import StoreWatchpoint
from zinc_rt.sim.shader.launch_setup import LaunchSetup, Refused, setup_of_dispatch, setup_of_registers
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.memory.line_caches import LineCaches
from zinc_rt.sim.shader.memory.ranges import RangeCache, RangeTable
from zinc_rt.sim.shader.run.compile_workers import prepare
from zinc_rt.sim.shader.run.crash import CrashRecord
from zinc_rt.sim.shader.run.debugger import DebuggedLaunch, WaveDebugger
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.kernels import CompiledKernel, CompiledKernels, choose_variant
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads
from zinc_rt.sim.shader.run.profile import ExecutionRecord, KernelCounters
from zinc_rt.sim.shader.run.unfinished import report_unfinished
from zinc_rt.sim.shader.translate.fetched_code import FetchedCode, KnownCode, fetch_code
from zinc_rt.sim.shader_engine import NOTHING, Accesses, ShaderDispatch
from zinc_rt.sim.stores import ObservedStore
from zinc_rt.sim.tables.registers import (
    PGM_RSRC1,
    PGM_RSRC2,
    PGM_RSRC3,
    SCRATCH_BASE_HI,
    SCRATCH_BASE_LO,
    TMPRING_SIZE,
    USER_DATA_0,
    USER_DATA_COUNT,
)

SLICE_SECONDS = 0.02  # of one dispatch, before the command processor looks after its other queues
TELL_SECONDS = 2.0  # for dispatches under way to say where their waves are
STOPPED_SECONDS = 1e-3  # the shortest interval between checks of a stuck wave
RUNS_KEPT = 1024  # launches whose memory stays set up
HITS_KEPT = 1 << 14  # of one address space, since `set_watchpoint`
SENTENCES_OF_SITE = 4  # of one instruction and rule of a kernel, in the life of the device
_USER_DATA = tuple(USER_DATA_0 + index for index in range(USER_DATA_COUNT))
_SavePages = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)
_REGISTERS = (
    PGM_RSRC1, PGM_RSRC2, PGM_RSRC3, TMPRING_SIZE,
    SCRATCH_BASE_LO, SCRATCH_BASE_HI,
)  # fmt: skip


@dataclass(slots=True, eq=False)
class _UnderWay:
    run: LaunchRun
    key: Hashable
    table: RangeTable
    dead: bool = False  # a wave stopped for good: the queue never goes on
    answered: int = 0  # the last question where its waves are


class _Memory:
    """Engine state of one address space. References the space only as far as the callback needs it, so that the
    engine is notified when it is released.
    """

    def __init__(self, vm: GpuVm, rules: WaveRules, *, bounds: bool, races: bool, caches: int | None) -> None:
        self.codes: dict[int, FetchedCode] = {}  # program VA: the last code there
        self.ranges = RangeCache(vm, bounds=bounds, races=races)
        self.caches = None if caches is None else LineCaches(caches, has_arrays=rules.has_array_caches)
        vm.wave_caches = self.caches
        self.stores = RecentStores(rules)
        self._mapped: tuple[VmSpan, ...] = ()
        reference = ref(vm)

        def save(va: int, size_bytes: int) -> None:
            vm = reference()
            span = vm.find_span(va) if vm is not None else None
            if span is not None:
                span.bo.prepare_gpu_write(span.offset + va - span.start, size_bytes)

        self._callback = _SavePages(save)
        self.save_pages = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def explain_stale(self, va: int, scalar: bool) -> str:
        """Describe a stale line: its cache, the last writer, and the missing invalidation."""
        assert self.caches is not None
        filled, from_stale = self.caches.find_oldest(va, scalar=scalar)
        return self.stores.explain_value(va, filled, SCALAR if scalar else VECTOR, from_stale=from_stale)

    def first_cache(self, vm: GpuVm) -> int:
        """Drop lines of unmapped memory and evict some others before a dispatch. Return the cache number of the
        first workgroup.
        """
        if self.caches is None:
            return 0
        if vm.spans != self._mapped:
            self._mapped = vm.spans
            self.caches.keep_mapped((span.start, span.end) for span in vm.spans)
        return self.caches.before_dispatch()


class GfxEngine:
    """The shader engine. `target` is the simulated chip. `level`: off, fast or full. `perturb`: a seed, 0 for
    exact results. `threads`: None for all cores of this process.

    `processors`: HW_ID1 of each workgroup processor, in the order of a queue's CU mask. `crashes` returns whether
    an injected crash is due; `record` is the crash record. `consulted` records coverage. `vgpr_seed`: if not 0,
    s_alloc_vgpr fails at times. `order_seed`: if not 0, decides the order of workgroups and waves.
    `reverse_lanes`: see Checks.
    `defect`: of the vector ALU.
    `caches`: a seed; loads of waves then go through caches that retain lines
    (line_caches.py), and waves run sequentially. `debugger` stops the waves, which then run sequentially too.
    """

    def __init__(
        self,
        target: Target,
        *,
        level: str = "fast",
        perturb: int = 0,
        threads: int | None = None,
        profile: bool = False,
        kernels: CompiledKernels | None = None,
        behaviour: Behaviour = DEFAULT,
        processors: Sequence[int] = (0,),
        crashes: Callable[[], bool] = lambda: False,
        record: CrashRecord | None = None,
        consulted: Coverage | None = None,
        caches: int | None = None,
        vgpr_seed: int = 0,
        order_seed: int = 0,
        defect: LaneDefect | None = None,
        debugger: WaveDebugger | None = None,
        reverse_lanes: bool = False,
    ) -> None:
        self.checks = Checks(
            level,
            perturb=bool(perturb),
            profile=profile,
            debug=debugger is not None,
            reverse_lanes=reverse_lanes,
            defect=defect is not None,
            wmma_f16_order=behaviour.wmma_f16_order,
            buffer_offset=behaviour.buffer_offset,
        )
        self._defect, self._debugger = defect, debugger
        self._target = target
        self._behaviour, self._processors = behaviour, tuple(processors)
        self.kernels = CompiledKernels(quick=True) if kernels is None else kernels
        self._seed = perturb
        self._cache_seed, self._vgpr_seed, self._order_seed = caches, vgpr_seed, order_seed
        sequential = caches is not None or debugger is not None
        self._wave_threads = WaveThreads(1 if sequential else threads or len(os.sched_getaffinity(0)))
        self._crashes, self._record, self._consulted = crashes, record, consulted
        self._under_way: dict[ShaderDispatch, _UnderWay] = {}
        self._idle: dict[Hashable, list[LaunchRun]] = {}
        self._memories: WeakKeyDictionary[AddressSpace, _Memory] = WeakKeyDictionary()
        self._counters: dict[tuple[bytes, int], KernelCounters] = {}  # by code and entry
        self._executions: dict[tuple[bytes, int], ExecutionRecord] = {}  # since the last call of `executions`
        self._known = KnownCode()
        self._times_reported: dict[tuple[tuple[bytes, int], int], int] = {}
        self._linted: set[KernelVariant] = set()
        self._forgets = False
        self._serials = itertools.count(1)
        self._asked = 0  # number of requests for the positions of waves
        self._beginning: ShaderDispatch | None = None  # its kernel may be compiled: seconds
        self._watchpoints: WeakKeyDictionary[AddressSpace, tuple[int, int]] = WeakKeyDictionary()
        self._watchpoint_hits: WeakKeyDictionary[AddressSpace, list[ObservedStore]] = WeakKeyDictionary()

    # --- sim.shader_engine.ShaderEngine ---

    def run(self, dispatch: ShaderDispatch) -> Accesses | None:
        under_way = self._under_way.get(dispatch)
        if under_way is None:
            asked, self._beginning = self._asked, dispatch
            try:
                under_way = self._begin(dispatch)
                under_way.answered = asked  # requests during the start are answered too
                self._under_way[dispatch] = under_way
            except Refused as refused:
                dispatch.report(refused.rule, f"{dispatch.label}: {refused}")
                return NOTHING
            finally:
                self._beginning = None
        elif not under_way.dead:
            under_way.table = self._memory(dispatch.space).ranges.table()
            under_way.run.use_table(under_way.table)
        if under_way.dead:
            time.sleep(STOPPED_SECONDS)
            return None
        run = under_way.run
        if self._record is not None:
            self._record.before(dispatch, run.kernel, self.checks)
        if self._crashes():
            self._crash()
        started = time.perf_counter()
        stop = run.advance(SLICE_SECONDS)
        counters = self._counters[_identity(run)]
        counters.seconds += time.perf_counter() - started
        if self._record is not None:
            self._record.after()
        if stop is Stop.FUEL:
            if under_way.answered != self._asked:
                under_way.answered = self._asked
                self._report_unfinished(dispatch, run, "still-running")
            return None
        if self._cache_seed is not None:
            self._memory(dispatch.space).stores.add(dispatch, run.serial, run.accesses())
        self._report_findings(dispatch, run, stop)
        if run.watchpoint is not None:
            self._keep_watchpoint_hits(dispatch, run, run.watchpoint)
        accesses = run.accesses()
        under_way.table.refresh(accesses.writes + accesses.atomics)
        fault = run.fault() if stop is Stop.FAULT else None
        if self._debugger is not None:
            if fault is not None:
                self._reported_fault(dispatch, run, fault)
            stop, fault = self._debugged(stop), None
        if stop is Stop.DONE or fault is not None:
            counters.dispatches += 1
            counters.waves += run.launch.group_count * run.launch.waves_per_group
            if self.checks.profile:
                self._count(run, counters)
            self._finish(dispatch, under_way)
            if _leave_scratch(dispatch, run) and self._consulted is not None:
                self._consulted.add_mark("scratch in memory")
        if fault is not None:
            raise self._reported_fault(dispatch, run, fault)
        if stop is not Stop.DONE:
            under_way.dead = True
            return None
        return accesses

    def _debugged(self, stop: Stop) -> Stop:
        """Notify the debugger of the launch's end. The queue continues after any end, to run the launch again."""
        assert self._debugger is not None
        self._debugger.listener.ended(stop)
        return Stop.DONE

    def abandon(self, dispatch: ShaderDispatch) -> None:
        under_way = self._under_way.get(dispatch)
        if under_way is None:
            return
        if not under_way.dead:
            self._report_unfinished(dispatch, under_way.run, "still-running")
        self._finish(dispatch, under_way)

    # --- concurrent requests ---

    def prepare(self, launches: Iterable[tuple[FetchedCode, LaunchSetup]]) -> None:
        """Compile kernels, on all cores, before they are dispatched."""
        prepare(
            self.kernels,
            [
                choose_variant(launch, self._target, item.code, self.checks, item.entry)
                for item, launch in launches
            ],
        )

    def precompile(self, space: AddressSpace, kernels: Sequence[KernelToCompile]) -> None:
        launches = []
        for kernel in kernels:
            target = self._target.with_wave(32 if kernel.wave32 else 64)
            with suppress(Refused, Fault):  # the dispatch will say so
                launch = setup_of_registers(
                    kernel.rsrc1, kernel.rsrc2, kernel.threads, wave32=kernel.wave32, rules=target.rules
                )
                code = fetch_code(space, kernel.program_va, target, self._known)
                self._memory(space).codes[kernel.program_va] = code
                launches.append((code, launch))
        self.prepare(launches)

    def set_watchpoint(self, space: AddressSpace, va: int, size_bytes: int) -> None:
        """Set a watchpoint: from the next dispatch on `watchpoint_hits` returns the stores to these bytes. Size
        0 removes it.
        """
        self._watchpoints.pop(space, None)
        self._watchpoint_hits.pop(space, None)
        if size_bytes:
            self._watchpoints[space] = va, size_bytes

    def watchpoint_hits(self, space: AddressSpace) -> list[ObservedStore]:
        """Return the hits since `set_watchpoint` in dispatch order, at most HITS_KEPT."""
        return list(self._watchpoint_hits.get(space, ()))

    def tell_again(self) -> None:
        """Clear the record of reported findings at the next launch, so that repeated findings are reported
        again. Call from a thread other than that of `run`.
        """
        self._forgets = True

    def tell_unfinished(self) -> bool:
        """Request findings with the positions of unfinished waves, each at the end of its dispatch's time
        slice. Return whether there are any. Call from a thread other than that of `run`; dispatches without a
        time slice report nothing.
        """
        self._asked += 1
        deadline = time.monotonic() + TELL_SECONDS
        while time.monotonic() < deadline:
            begins = self._beginning is not None  # read before the running work, which it joins
            running = [item for item in list(self._under_way.values()) if not item.dead]
            if not begins and all(item.answered == self._asked for item in running):
                return bool(running)
            time.sleep(SLICE_SECONDS / 4)
        return False

    def profile(self) -> list[KernelCounters]:
        """Return the counters of every kernel that ran, longest first."""
        return sorted(self._counters.values(), key=lambda one: -one.seconds)

    def executions(self) -> list[KernelExecution]:
        """Return the executions that completed since the last call, by kernel; empty unless created with
        `profile`.
        """
        records, self._executions = self._executions, {}
        return [record.result() for record in records.values()]

    # --- details ---

    def _count(self, run: LaunchRun, counters: KernelCounters) -> None:
        times, weights, identity = run.block_executions(), run.weights, _identity(run)
        counters.instructions += int(times @ weights.instructions)
        counters.bytes += int(times @ weights.bytes)
        record = self._executions.setdefault(identity, ExecutionRecord(counters.name))
        record.add(weights, times, run.accessed_ranges(), identity[1])

    def _crash(self) -> None:
        """Crash like faulty compiled code would, if the process is the device's own."""
        if self._record is None:
            raise RuntimeError("compiled shader code crashed (injected)")
        ctypes.string_at(0)

    def _begin(self, dispatch: ShaderDispatch) -> _UnderWay:
        code = self._code(dispatch)
        registers = dispatch.registers
        key = (
            code, dispatch.groups, dispatch.start, dispatch.group_threads, dispatch.last_threads, dispatch.wave32,
            *[registers.get(register, 0) for register in _REGISTERS], dispatch.queue.extra.get("cu_mask", 0),
        )  # fmt: skip
        if self._debugger is not None:
            self._memories.pop(dispatch.space, None)  # each run starts from the same state
        if self._forgets or self._debugger is not None:
            self._forgets = False
            for message in (self._times_reported, self._linted, self._idle):
                message.clear()
        idle = self._idle.get(key)
        run = idle.pop() if idle else None
        if run is None or self.kernels.is_outdated(run.kernel):
            run = self._made(dispatch, code)
        memory = self._memory(dispatch.space)
        table = memory.ranges.table()
        watched = self._watchpoints.get(dispatch.space)
        run.watchpoint = None if watched is None else StoreWatchpoint(*watched)
        count = registers.get(PGM_RSRC2, 0) >> 1 & 0x1F
        user_data = [registers.get(user_item, 0) for user_item in _USER_DATA[:count]]
        assert isinstance(dispatch.space, GpuVm)
        first = memory.first_cache(dispatch.space)
        if self._cache_seed is not None:
            self._check_fetched(dispatch, code)
            if self._consulted is not None:
                self._consulted.add_mark("waves with caches")
        run.begin(
            table,
            dispatch.program_va - code.entry,
            next(self._serials),
            memory.save_pages,
            user_data,
            memory.caches,
            first,
        )
        return _UnderWay(run, key, table)

    def _made(self, dispatch: ShaderDispatch, code: FetchedCode) -> LaunchRun:
        launch = replace(
            setup_of_dispatch(dispatch), ids_enabled=self._ids_enabled(dispatch), places=self._places(dispatch)
        )
        kernel = self.kernels.of(choose_variant(launch, self._target, code.code, self.checks, code.entry))
        name = dispatch.space.describe(dispatch.program_va)
        identity = code.code, code.entry
        if identity not in self._counters:
            self._counters[identity] = KernelCounters(name)
        if self.checks.fast and kernel.variant not in self._linted:
            self._linted.add(kernel.variant)
            target = kernel.variant.target
            for finding in find_static_findings(code.code, target, name, launch, self.kernels.cache, code.entry):
                self._report(dispatch, identity, finding)
        if self._debugger is not None:
            self._debugger.begins(DebuggedLaunch(kernel, launch, self._finding_text(dispatch, kernel, launch)))
        return LaunchRun(
            kernel,
            launch,
            self._wave_threads,
            mode=launch.mode,
            seed=self._seed,
            vgpr_seed=self._vgpr_seed,
            order_seed=self._order_seed,
            defect=self._defect,
            debugger=self._debugger,
        )

    def _ids_enabled(self, dispatch: ShaderDispatch) -> tuple[int, int, int]:
        if self._behaviour.ids_without_enables == "filled":
            return (1, 1, 1)
        rsrc2 = dispatch.register(PGM_RSRC2)
        return (rsrc2 >> 7 & 1, rsrc2 >> 8 & 1, rsrc2 >> 9 & 1)

    def _places(self, dispatch: ShaderDispatch) -> tuple[int, ...]:
        """Return the processors enabled in the queue's CU mask; all if it has none."""
        mask = int(dispatch.queue.extra.get("cu_mask", 0))
        chosen = tuple(item for index, item in enumerate(self._processors) if mask >> 2 * index & 3)
        return chosen or self._processors

    def _code(self, dispatch: ShaderDispatch) -> FetchedCode:
        """Return the reachable code in the instruction cache."""
        space, va = dispatch.space, dispatch.program_va
        codes = self._memory(space).codes
        known, target = codes.get(va), self._target.with_wave(32 if dispatch.wave32 else 64)
        if known is None or not known.is_at(space, va):
            codes[va] = fetch_code(space, va, target, self._known)
        if self._consulted is not None:
            self._consulted.ran(codes[va].code, target, codes[va].entry)
            if known is not None and known != codes[va]:
                self._consulted.add_mark("code replaced")
            enables = dispatch.register(PGM_RSRC2) >> 7
            if any(not enables >> axis & 1 for axis in range(3) if axis == 0 or dispatch.groups[axis] > 1):
                self._consulted.add_mark("workgroup ids not enabled")
            if any(threads > 1 for threads in dispatch.group_threads[(enables >> 4 & 3) + 1 :]):
                self._consulted.add_mark("work-item ids not enabled")
        return codes[va]

    def _check_fetched(self, dispatch: ShaderDispatch, code: FetchedCode) -> None:
        """Check that the instruction cache matches memory; report a finding if not."""
        va = dispatch.program_va
        index = code.find_first_difference(dispatch.space.read, va)
        if index is None:
            return
        pc = index - code.entry
        name = dispatch.space.describe(va)
        dispatch.report(
            "stale-line",
            f"{dispatch.label}: {name}: the instruction cache holds older code from pc {pc:#x}: "
            f"{self._memory(dispatch.space).stores.find_writer(va + pc)} has stored there since, "
            "without a GLI_INV of "
            "an ACQUIRE_MEM after it",
            place=CodePlace(name, pc),
        )

    def _memory(self, space: AddressSpace) -> _Memory:
        memory = self._memories.get(space)
        if memory is None:
            assert isinstance(space, GpuVm)
            memory = self._memories[space] = _Memory(
                space,
                self._target.rules,
                bounds=self.checks.fast,
                races=self.checks.full,
                caches=self._cache_seed,
            )
        return memory

    def _finish(self, dispatch: ShaderDispatch, under_way: _UnderWay) -> None:
        del self._under_way[dispatch]
        if len(self._idle) >= RUNS_KEPT and under_way.key not in self._idle:
            del self._idle[next(iter(self._idle))]
        under_way.run.release_memory()
        self._idle.setdefault(under_way.key, []).append(under_way.run)

    def _report_findings(self, dispatch: ShaderDispatch, run: LaunchRun, stop: Stop) -> None:
        records, total = run.findings()
        if not total and stop in (Stop.DONE, Stop.FAULT):
            return
        texts = self._finding_text(dispatch, run.kernel, run.launch)
        identity = _identity(run)
        for finding in texts.format_records(records, total):
            self._report(dispatch, identity, finding)
        self._counters[identity].findings += total
        if stop in (Stop.ILLEGAL, Stop.HALT):
            self._report(dispatch, identity, texts.format_wave(*run.stopped_at()), always=True)
        elif stop is Stop.STUCK:
            self._report_unfinished(dispatch, run, "barrier-stuck")

    def _report_unfinished(self, dispatch: ShaderDispatch, run: LaunchRun, rule: str) -> None:
        texts = self._finding_text(dispatch, run.kernel, run.launch)
        for finding in report_unfinished(run.standing(), run.kernel.variant, texts, rule, run.progress):
            self._report(dispatch, _identity(run), finding, always=True)

    def _reported_fault(self, dispatch: ShaderDispatch, run: LaunchRun, fault: Fault) -> Fault:
        """Report the faulting instruction and wave. It is reported every time, because it ends the queue."""
        assert run.ended is not None
        texts = self._finding_text(dispatch, run.kernel, run.launch, describe=dispatch.space.nearby)
        finding, kind = texts.format_fault(run.ended.state, run.ended.context, fault.why)
        if self._debugger is not None:
            self._debugger.listener.reported(finding)
        near = dispatch.space.nearby(fault.va)
        dispatch.report(
            finding.rule,
            f"{dispatch.label}: {finding.sentence}",
            place=finding.place,
            fault=DevicePageFault(fault.va, kind, fault.why, near, dispatch.label),
        )
        return Fault(fault.va, fault.access, fault.why, finding.sentence)

    def _keep_watchpoint_hits(self, dispatch: ShaderDispatch, run: LaunchRun, watchpoint: StoreWatchpoint) -> None:
        kept = self._watchpoint_hits.setdefault(dispatch.space, [])
        variant, kernel = run.kernel.variant, dispatch.space.describe(dispatch.program_va)
        for hit in watchpoint.list_hits(run.kernel.sites)[: max(HITS_KEPT - len(kept), 0)]:
            group = group_id(hit.group, run.launch.groups, run.launch.start)
            text, pc = disassemble_at(variant.code, hit.pc, variant.target, variant.entry), hit.pc - variant.entry
            kept.append(
                ObservedStore(kernel, dispatch.label, text, pc, group, hit.wave, hit.lane, hit.address, hit.value)
            )

    def _report(
        self, dispatch: ShaderDispatch, code: tuple[bytes, int], finding: WaveFinding, *, always: bool = False
    ) -> None:
        """Report a finding of a dispatch. `always`: report it even if others reported it before."""
        if self._debugger is not None:
            self._debugger.listener.reported(finding)
        key = (code, hash((finding.pc, finding.rule)))
        self._times_reported[key] = self._times_reported.get(key, 0) + 1
        if always or self._times_reported[key] <= SENTENCES_OF_SITE:
            dispatch.report(finding.rule, f"{dispatch.label}: {finding.sentence}", place=finding.place)

    def _finding_text(
        self,
        dispatch: ShaderDispatch,
        kernel: CompiledKernel,
        launch: LaunchSetup,
        *,
        describe: Callable[[int], str] | None = None,
    ) -> FindingText:
        space = dispatch.space
        return FindingText(
            space.describe(dispatch.program_va),
            kernel.variant.code,
            kernel.variant.target,
            kernel.sites,
            launch.groups,
            launch.start,
            describe or space.describe,
            self._memory(space).explain_stale,
            kernel.variant.entry,
        )


def _leave_scratch(dispatch: ShaderDispatch, run: LaunchRun) -> bool:
    """Copy the waves' scratch to the address in the registers, for as many waves as fit. Return whether there
    was any data.

    Waves use a separate scratch buffer, which is copied to memory at the end of the dispatch. Raises Fault if that
    memory is not mapped.
    """
    left = False
    room = dispatch.register(TMPRING_SIZE) & 0xFFF
    for number, data in enumerate(itertools.islice(run.scratch_left(), room)):
        if data.count(0) == len(data):
            continue  # no wave stored anything
        left = True
        try:
            dispatch.space.write(dispatch.scratch_va + number * len(data), data)
        except Fault as fault:
            near = dispatch.space.nearby(fault.va)
            dispatch.report(
                "page-fault",
                f"{dispatch.label}: waves store to scratch at 0x{fault.va:x}: {fault.why}; {near}",
                fault=DevicePageFault(fault.va, "scratch store", fault.why, near, dispatch.label),
            )
            raise
    return left


def _identity(run: LaunchRun) -> tuple[bytes, int]:
    """Return the identity of a kernel: its code and entry offset."""
    return run.kernel.variant.code, run.kernel.variant.entry
