"""A launch in progress: its job, the workgroups in their slots, the threads that run them."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from queue import SimpleQueue

import numpy as np

from zinc_rt.sim import interfaces
from zinc_rt.sim.defects import LaneDefect
from zinc_rt.sim.interfaces import Fault
from zinc_rt.sim.shader.checks.lds_clocks import clocks_bytes
from zinc_rt.sim.shader.checks.watchpoints import StoreWatchpoint, detach
from zinc_rt.sim.shader.emit.trace import TracedStep, lines, steps
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.layout import (
    ALIGNMENT,
    CONTEXT,
    EXTENT,
    FINDING,
    MEMORY_SITE,
    NULL,
    RACE,
    SITE_STATE,
    STATE,
    TRACE,
    VGPR_ALIGNMENT,
    Checks,
    RecordBlock,
    Site,
    Status,
    WaveAccess,
    aligned,
    state_bytes,
)
from zinc_rt.sim.shader.memory.line_caches import LineCaches
from zinc_rt.sim.shader.memory.ranges import RangeTable
from zinc_rt.sim.shader.run.debugger import WaveDebugger
from zinc_rt.sim.shader.run.group_runner import JOB, SLOT, Stop, runners
from zinc_rt.sim.shader.run.group_shapes import make_group_shapes, make_state_template
from zinc_rt.sim.shader.run.kernels import CompiledKernel
from zinc_rt.sim.shader.run.profile import BlockWeights, compute_block_weights
from zinc_rt.sim.shader.run.touched_memory import find_ranges_by_site, find_touched
from zinc_rt.sim.shader.run.unfinished import StandingWave
from zinc_rt.sim.shader_engine import Accesses

TRACE_KEPT = 1 << 18  # records
FINDINGS_KEPT = 1024  # records of one thread and launch, or twice the number of sites: each has at least one
RESIDENT = 64  # workgroups under way at once where each waits for others
FRESH_EVERY = 4  # of so many turns one starts a new workgroup instead of going on with an old one
ALONE_FUEL = 1 << 15  # before other threads are woken
SHORT_SECONDS = 100e-6  # a launch that took longer the last time wakes them at once
SHARE_SECONDS = 50e-6  # of work is worth waking a thread for
TURN_FUEL = 1 << 22  # of one thread before it looks at the clock
SHARED_BASE, PRIVATE_BASE = 1 << 48, 2 << 48  # apertures of flat addresses, as KFD lays them out on gfx9 and later
LDS_FILL = 0xA5  # initial contents of a workgroup's LDS


@dataclass(frozen=True, slots=True)
class StoppedWave:
    """The reason why a launch stopped: a stopped wave. `state` is a copy of its header."""

    stop: Stop
    state: np.void
    context: np.void


def lds_shadow_bytes(lds_bytes: int, checks: Checks) -> int:
    """Return the size of the LDS shadow: one byte per dword and, in mode full, one RACE record and the clocks of
    one dword, rounded up to whole lines, then the clocks of the waves.
    """
    dwords = -(-lds_bytes // (4 * ALIGNMENT)) * ALIGNMENT
    clocks = clocks_bytes(dwords) if checks.full and dwords else 0
    return dwords * (checks.fast + RACE.size_bytes * checks.full) + clocks


class GroupSlot:
    """The memory of one workgroup."""

    def __init__(self, launch: LaunchSetup, shadow_bytes: int, scratch_wave_bytes: int) -> None:
        waves = launch.waves_per_group
        self.block = RecordBlock(SLOT)
        self.state_bytes = state_bytes(launch.wave, launch.vgprs)
        self._states = aligned(self.state_bytes * waves, VGPR_ALIGNMENT)
        self._lds = aligned(launch.lds_bytes + 64)
        self._shadow = aligned(shadow_bytes)
        self._scratch = aligned(scratch_wave_bytes * waves)
        self.block["states"] = int(self._states.ctypes.data)
        self.block["lds"] = int(self._lds.ctypes.data)
        self.block["lds_shadow"] = int(self._shadow.ctypes.data) if shadow_bytes else 0
        self.block["scratch"] = int(self._scratch.ctypes.data)

    def standing(self, wave: int, lanes: int) -> StandingWave:
        """Return a copy of a suspended wave's registers and state."""
        raw = self._states[wave * self.state_bytes :][: self.state_bytes]
        vgprs = raw[STATE.size_bytes :].view(np.uint32)
        return StandingWave(self.header(wave), vgprs[: vgprs.size // lanes * lanes].reshape(-1, lanes).copy())

    def scratch(self, wave: int, wave_bytes: int, data_bytes: int) -> bytes:
        """Return the scratch of one wave; if this workgroup has fewer waves, it may be from an earlier wave."""
        return self._scratch[wave * wave_bytes :][:data_bytes].tobytes()

    def header(self, wave: int) -> np.void:
        """Return a copy of the state header of one wave."""
        raw = self._states[wave * self.state_bytes :][: STATE.size_bytes].copy()
        return raw.view(STATE.dtype)[0]


def _clear(records: np.ndarray) -> None:
    records.view(np.uint8).data[:] = bytes(records.nbytes)  # NumPy goes field by field: twenty times as long


class LaunchThread:
    """Per-thread state of a launch: context, records."""

    def __init__(self, kernel: CompiledKernel, wave_threads: WaveThreads) -> None:
        self.wave_threads = wave_threads
        self.block = RecordBlock(CONTEXT)
        self.findings = np.zeros(max(FINDINGS_KEPT, 2 * len(kernel.sites)), FINDING.dtype)
        self.sites = np.zeros(max(len(kernel.sites), 1), SITE_STATE.dtype)
        self.memory_sites = np.zeros(max(kernel.counts.get("memory", 0), 1), MEMORY_SITE.dtype)
        self.extents = NO_EXTENTS
        self.blocks_run = np.zeros(max(kernel.counts.get("block", 0), 1), np.uint64)
        block = self.block
        block["findings"] = int(self.findings.ctypes.data)
        block["findings_capacity"] = len(self.findings)
        block["sites"] = int(self.sites.ctypes.data)
        block["memory_sites"] = int(self.memory_sites.ctypes.data)
        block["records"] = kernel.records
        block["profile"] = int(self.blocks_run.ctypes.data)
        self.trace = np.zeros(TRACE_KEPT if kernel.variant.checks.trace else 0, TRACE.dtype)
        block["trace"], block["trace_capacity"] = int(self.trace.ctypes.data), len(self.trace)
        block["shared_base"], block["private_base"] = SHARED_BASE, PRIVATE_BASE

    def use_memory(self, table: RangeTable, save_pages: int) -> None:
        """Set the memory accessed by its waves. `save_pages`: address of the callback to run before a store to
        a SAVED page.
        """
        self.block["save_pages"] = save_pages
        block = self.block
        block["ranges"], block["spans"] = table.addresses
        block["ranges_count"], block["spans_count"] = len(table.ranges), len(table.spans)
        self.release_memory()
        self.extents = self.wave_threads.extents(len(table.ranges))
        block["extents"] = int(self.extents.ctypes.data)

    def release_memory(self) -> None:
        """Release the large table for reuse by other launches, while it is still in the processor's cache."""
        self.wave_threads.give_back(self.extents)
        self.extents = NO_EXTENTS


NO_EXTENTS = np.zeros((len(WaveAccess), 0), EXTENT.dtype)
_STOPS = {int(stop): stop for stop in Stop}
_Call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def group_order(count: int, seed: int) -> tuple[int, int]:
    """Return (step, first) of a permutation of the workgroups, number n is (n * step + first) % count; the usual
    order without a seed."""
    if not seed or count < 2:
        return 1, 0
    choices = random.Random(seed)
    step = choices.randrange(1, count)
    while gcd(step, count) != 1:
        step = choices.randrange(1, count)
    return step, choices.randrange(count)


class WaveThreads:
    """Threads for large launches; created on first use and ended with this object."""

    def __init__(self, threads: int) -> None:
        self.threads = max(threads, 1)
        self._asked: list[SimpleQueue[Callable[[], None] | None]] = []
        self._extents: dict[int, list[np.ndarray]] = {}

    def extents(self, ranges: int) -> np.ndarray:
        """Return zeroed EXTENT records, [kinds of WaveAccess, ranges]."""
        free = self._extents.get(ranges)
        return free.pop() if free else np.zeros((len(WaveAccess), max(ranges, 1)), EXTENT.dtype)

    def give_back(self, extents: np.ndarray) -> None:
        """Return extents for reuse; those of released tables are dropped."""
        if not extents.size:
            return
        words = extents.reshape(-1).view(np.uint64)
        if words.any():
            words.fill(0)
        if extents.shape[1] not in self._extents:
            self._extents.clear()
        self._extents.setdefault(extents.shape[1], []).append(extents)

    def ask(self, works: Sequence[Callable[[], Stop]]) -> SimpleQueue[Stop | BaseException]:
        """Run each function in its own thread, at most threads - 1 of them. Return a queue that receives each
        function's result or exception.
        """
        while len(self._asked) < len(works):
            queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
            threading.Thread(target=_help, args=(queue,), name="waves", daemon=True).start()
            self._asked.append(queue)
        answers: SimpleQueue[Stop | BaseException] = SimpleQueue()

        def answered(work: Callable[[], Stop]) -> None:
            try:
                answers.put(work())
            except BaseException as error:
                answers.put(error)

        for queue, work in zip(self._asked, works, strict=False):
            queue.put(partial(answered, work))
        return answers

    def __del__(self) -> None:
        for asked in self._asked:
            asked.put(None)


def _help(asked: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := asked.get()) is not None:
        work()
        del work


class LaunchRun:
    """A repeatable launch: call `begin`, then `advance` until it reports completion."""

    def __init__(
        self,
        kernel: CompiledKernel,
        launch: LaunchSetup,
        wave_threads: WaveThreads,
        *,
        mode: int,
        seed: int = 0,
        traced: int = 0,
        vgpr_seed: int = 0,
        order_seed: int = 0,
        defect: LaneDefect | None = None,
        debugger: WaveDebugger | None = None,
    ) -> None:
        """Create a launch. `traced`: number of the wave to trace, if the kernel is compiled with trace.
        `vgpr_seed`: if not 0, s_alloc_vgpr fails at times. `order_seed`: if not 0, it decides the order of
        workgroups, and of the turns of their waves. `debugger`: of a kernel that is compiled with debug.
        """
        self._traced, self._debugger = traced, debugger
        self.kernel, self.launch = kernel, launch
        self.watchpoint: StoreWatchpoint | None = None  # set before `begin` is called
        self._wave_threads = wave_threads
        self._seed, self._vgpr_seed, self._defect = seed, vgpr_seed, defect
        scratch_bytes = launch.scratch_bytes * launch.wave
        self.scratch_wave_bytes = scratch_bytes // 4 * 5  # a shadow byte per dword
        self._shadow_bytes = lds_shadow_bytes(launch.lds_bytes, kernel.variant.checks)
        self.job = RecordBlock(JOB)
        self._template = make_state_template(launch)
        self._user_data = self._template.view(STATE.dtype)["sgprs"][0]
        self._shapes = make_group_shapes(launch)
        job = self.job
        for axis, name in enumerate("xyz"):
            job[f"groups_{name}"], job[f"start_{name}"] = launch.groups[axis], launch.start[axis]
        job["count"] = launch.group_count
        job["group_step"], job["group_first"] = group_order(launch.group_count, order_seed)
        job["order_seed"] = order_seed
        job["lds_bytes"] = launch.lds_bytes
        job["lds_shadow_bytes"] = self._shadow_bytes
        job["lds_fill"] = LDS_FILL
        job["state_bytes"] = state_bytes(launch.wave, launch.vgprs)
        job["scratch_data_bytes"] = scratch_bytes
        job["scratch_wave_bytes"] = self.scratch_wave_bytes
        x, y, z = launch.ids_enabled
        if launch.id_sgprs is None:
            job["ids_x_mask"] = 0xFFFFFFFF * x
            job["ids_yz_mask"] = 0xFFFF * y | 0xFFFF0000 * z
        job["ids_in_sgprs"] = int(launch.id_sgprs is not None)
        job.record["id_sgprs"][:] = launch.id_sgprs or NULL
        self._places = np.array(launch.places, np.uint32)
        job["places"], job["places_count"] = int(self._places.ctypes.data), len(self._places)
        job["wgp_mode"] = int(launch.wgp_mode)
        job["wave"] = kernel.address
        job["template"] = int(self._template.ctypes.data)
        job.record["shapes"][:] = [int(shape.ctypes.data) for shape in self._shapes]
        self._runners = runners()  # the code stays loaded as long as the launch has its address
        self._call = _Call(self._runners.at[f"run_groups{launch.wave}"])
        self._mode = mode
        self._slots: list[GroupSlot] = []
        self._idle: list[GroupSlot] = []
        self._parked: deque[GroupSlot] = deque()
        self._stuck: list[GroupSlot] = []
        self._lock = threading.Lock()
        self.threads: list[LaunchThread] = [self._thread()]
        self._table: RangeTable | None = None
        self.ended: StoppedWave | None = None
        self._turns = 0
        self._weights: BlockWeights | None = None
        self._seconds_before = self._seconds = 0.0  # of all threads: the last launch, and this one so far

    def _thread(self) -> LaunchThread:
        thread = LaunchThread(self.kernel, self._wave_threads)
        thread.block["mode"] = self._mode
        thread.block["perturb_seed"], thread.block["vgpr_seed"] = self._seed, self._vgpr_seed
        thread.block["trace_wave"] = self._traced
        if self._defect is not None:
            defect, any_value = self._defect, self._defect.value is None
            thread.block["defect_lane"], thread.block["defect_register"] = defect.lane, defect.register
            thread.block["defect_any"], thread.block["defect_value"] = int(any_value), defect.value or 0
            thread.block["defect_flip"], thread.block["defect_stuck"] = defect.flip, defect.stuck
        return thread

    def begin(
        self,
        table: RangeTable,
        program_va: int,
        serial: int,
        save_pages: int = 0,
        user_data: Sequence[int] | None = None,
        caches: LineCaches | None = None,
        first_cache: int = 0,
    ) -> None:
        """Start from the first workgroup, in this memory. `user_data` replaces the launch's, with the same
        length. `caches`: the caches of its waves' loads; workgroup 0 uses number `first_cache`.
        """
        self.job["first_cache"] = first_cache
        if caches is not None:
            for name, address in zip(("vector", "scalar", "array"), caches.addresses, strict=True):
                self.job[f"{name}_caches"] = address
        if user_data is not None:
            self._user_data[: len(user_data)] = user_data
        self.job["next"] = 0
        if self.ended is not None:
            self.job["stop"], self.ended = 0, None
        if self._parked or self._stuck:
            for slot in (*self._parked, *self._stuck):
                slot.block["active"] = 0
                self._idle.append(slot)
            self._parked.clear()
            self._stuck.clear()
        self._turns = 0
        self._seconds_before, self._seconds = self._seconds, 0.0
        self.kernel.seconds += self._seconds_before
        for thread in self.threads:
            thread.use_memory(table, save_pages)
            self._start(thread, program_va, serial)
        self._table, self._save_pages = table, save_pages
        self._program_va, self.serial = program_va, serial

    def release_memory(self) -> None:
        """Release the memory of a completed run."""
        self._table = None
        for thread in self.threads:
            thread.release_memory()

    def use_table(self, table: RangeTable) -> None:
        """Set the table: mappings may have changed since the last `advance`."""
        if table is not self._table:
            for thread in self.threads:
                _clear(thread.memory_sites)
                thread.use_memory(table, self._save_pages)
            self._table = table

    def _start(self, thread: LaunchThread, program_va: int, serial: int) -> None:
        block = thread.block
        block["program_va"], block["serial"] = program_va, serial
        block["trace_count"] = 0
        if self._debugger is not None:
            self._debugger.attach(block, thread.findings)
        if self.watchpoint is not None:
            self.watchpoint.attach(block)
        elif block["watch_hi"]:
            detach(block)
        _clear(thread.memory_sites)
        if block["findings_count"]:
            block["findings_count"] = 0
            _clear(thread.sites)

    @property
    def weights(self) -> BlockWeights:
        if self._weights is None:
            variant = self.kernel.variant
            self._weights = compute_block_weights(variant.code, variant.target, variant.entry)
        return self._weights

    def block_executions(self) -> np.ndarray:
        """Return the executions of each block since the last call, if the kernel is compiled with profile."""
        total = np.sum([thread.blocks_run for thread in self.threads], axis=0).astype(np.int64)
        for thread in self.threads:
            thread.blocks_run.fill(0)
        return total

    def accessed_ranges(self) -> dict[int, set[tuple[int, int]]]:
        """Return the ranges of the table that each memory instruction may have accessed since `begin`, by its
        offset in the code."""
        assert self._table is not None
        arrays = [(thread.memory_sites, thread.extents) for thread in self.threads]
        return find_ranges_by_site(self.kernel.memory_pcs, arrays, self._table.ranges)

    def trace_records(self) -> tuple[np.ndarray, int]:
        """Return the TRACE records so far, and the number of further ones that did not fit."""
        kept = [thread.trace[: thread.block["trace_count"]] for thread in self.threads]
        count = sum(int(thread.block["trace_count"]) for thread in self.threads)
        return np.concatenate(kept), count - sum(map(len, kept))

    def steps(self) -> list[TracedStep]:
        """Return the steps of the traced wave so far, as data."""
        return [
            step
            for thread in self.threads
            for step in steps(thread.trace, thread.block["trace_count"], self.launch.wave)
        ]

    def trace(self) -> list[str]:
        """Return the steps of the traced wave so far, as text."""
        variant = self.kernel.variant
        return [
            line
            for thread in self.threads
            for line in lines(thread.trace, thread.block["trace_count"], variant.target, variant.code)
        ]

    def advance(self, seconds: float, fuel: int | None = None) -> Stop:
        """Run, and return DONE, FUEL (call again), STUCK (no wave can continue), or FAULT, ILLEGAL, HALT, with
        `ended` set.

        Returns after about `seconds`, or once each thread has used up `fuel`.
        """
        if self._debugger is not None:  # in an order that does not depend on the time
            return self._work(self.threads[0], float("inf"), None)
        started = time.perf_counter()
        deadline, stop, expected = started + seconds, Stop.FUEL, self._seconds_before
        if expected < SHORT_SECONDS or self._wave_threads.threads == 1:
            alone_fuel = ALONE_FUEL if fuel is None else min(fuel, ALONE_FUEL)
            stop = self._work(self.threads[0], 0.0, alone_fuel)
            fuel = None if fuel is None else fuel - alone_fuel
            took = time.perf_counter() - started
            self._seconds += took
            started += took
            expected = took * self.launch.group_count / max(self.job["next"], 1)
        if stop is Stop.FUEL and (fuel is None or fuel > 0):
            left = self.launch.group_count - self.job["next"] + len(self._parked)
            wanted = max(1, min(self._wave_threads.threads, left, 1 + int(expected / SHARE_SECONDS)))
            stop = self._together(wanted, deadline, fuel)
            self._seconds += (time.perf_counter() - started) * wanted
        return stop

    def _together(self, wanted: int, deadline: float, fuel: int | None) -> Stop:
        while len(self.threads) < wanted:
            thread = self._thread()
            assert self._table is not None
            thread.use_memory(self._table, self._save_pages)
            self._start(thread, self._program_va, self.serial)
            self.threads.append(thread)
        helpers = [partial(self._work, thread, deadline, fuel) for thread in self.threads[1:wanted]]
        answers = self._wave_threads.ask(helpers)
        stops = [self._work(self.threads[0], deadline, fuel)]
        for _ in helpers:
            answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            stops.append(answer)
        if self.ended is not None:
            return self.ended.stop
        if self._parked or self.job["next"] < self.job["count"] or Stop.FUEL in stops:
            return Stop.FUEL
        return Stop.STUCK if self._stuck else Stop.DONE

    def _work(self, thread: LaunchThread, deadline: float, fuel: int | None) -> Stop:
        """Run workgroups until there are none left, the deadline has passed, or a wave has stopped."""
        job, context = self.job, thread.block
        left = 1 << 62 if fuel is None else fuel
        while True:
            slot = self._take()
            if slot is None:
                return Stop.DONE if not self._stuck else Stop.STUCK
            share = min(TURN_FUEL, left)
            context["fuel"] = share
            stop = _STOPS[self._call(job.address, context.address, slot.block.address)]
            if stop is Stop.DONE and not self._parked and thread is self.threads[0] and len(self.threads) == 1:
                self._idle.append(slot)  # the usual end of a small launch
                return Stop.STUCK if self._stuck else Stop.DONE
            left -= share - min(context["fuel"], share)
            if stop > Stop.FUEL:
                with self._lock:
                    if self.ended is None:
                        wave = slot.block["failed"]
                        self.ended = StoppedWave(stop, slot.header(wave), context.record.copy())
                    self._idle.append(slot)
                    slot.block["active"] = 0
                return stop
            with self._lock:
                if stop is Stop.STUCK:
                    self._stuck.append(slot)
                elif slot.block["active"]:
                    self._parked.append(slot)
                else:
                    self._idle.append(slot)
                over = job["next"] >= job["count"] and not self._parked
            if over:
                return Stop.STUCK if self._stuck else Stop.DONE
            if job["stop"] or left <= 0 or (stop is Stop.FUEL and time.perf_counter() >= deadline):
                return Stop.FUEL

    def _take(self) -> GroupSlot | None:
        with self._lock:
            self._turns += 1
            more = self.job["next"] < self.job["count"]
            room = len(self._parked) + len(self._stuck) < RESIDENT
            if self._parked and not (more and room and self._turns % FRESH_EVERY == 0):
                return self._parked.popleft()
            if not more:
                return None
            if self._idle:
                return self._idle.pop()
            slot = GroupSlot(self.launch, self._shadow_bytes, self.scratch_wave_bytes)
            self._slots.append(slot)
            return slot

    @property
    def progress(self) -> str:
        """Return a text with the number of workgroups that have ended and started."""
        started = min(self.job["next"], self.launch.group_count)
        ended = started - len(self._parked) - len(self._stuck)
        return f"{ended} of {self.launch.group_count} workgroups have ended, {started - ended} are unfinished"

    def standing(self) -> list[StandingWave]:
        """Return the started and unfinished waves by workgroup. Valid between calls of `advance`."""
        slots = sorted((*self._stuck, *self._parked), key=lambda slot: slot.block["group"])
        return [
            standing
            for slot in slots
            for wave in range(slot.block["waves"])
            if (standing := slot.standing(wave, self.launch.wave)).header["status"] != Status.DONE
            and standing.header["resume"]
        ]

    def scratch_left(self) -> Iterator[bytes]:
        """Return the scratch of each resident wave slot after its last wave: dword d of lane i is at (d * wave +
        i) * 4.
        """
        data_bytes = self.launch.scratch_bytes * self.launch.wave
        for slot in self._slots if data_bytes else ():
            for wave in range(self.launch.waves_per_group):
                yield slot.scratch(wave, self.scratch_wave_bytes, data_bytes)

    def stopped_at(self) -> tuple[np.void, Site]:
        """Return the header and position of the wave that stopped with ILLEGAL or HALT."""
        assert self.ended is not None
        return self.ended.state, self.kernel.sites[int(self.ended.state["site"])]

    def fault(self) -> Fault:
        """Return the fault of a wave that stopped with FAULT."""
        assert self.ended is not None and self._table is not None
        context, spans = self.ended.context, self._table.spans
        va, access = int(context["fault_va"]), WaveAccess(int(context["fault_access"]))
        mapped = bool(((spans["va_lo"] <= va) & (va < spans["va_hi"])).any())
        write = access in (WaveAccess.WRITE, WaveAccess.ATOMIC)
        kind = interfaces.AccessKind.WRITE if write else interfaces.AccessKind.READ
        return Fault(va, kind, "read only" if mapped and write else "not present")

    def findings(self) -> tuple[np.ndarray, int]:
        """Return the sorted FINDING records of all threads, and the total including dropped ones."""
        counts = [thread.block["findings_count"] for thread in self.threads]
        if not any(counts):
            return np.zeros(0, FINDING.dtype), 0
        findings = [thread.findings[:count] for thread, count in zip(self.threads, counts, strict=True)]
        return np.sort(np.concatenate(findings), order=("site", "group", "wave")), sum(counts)

    def accesses(self) -> Accesses:
        """Return the accesses since `begin`."""
        return find_touched(
            (thread.memory_sites for thread in self.threads), (thread.extents for thread in self.threads)
        )
