"""Fault injection: one row per fault, checked at one named point.

`--inject NAME[:COUNT|@NTH]`: every time, the first COUNT times, or only the NTH time the point is reached.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class Injection:
    """`probe` is the row of the bring-up probes whose failure signature this fault reproduces; PROGRAM for a fault
    of the system that programs must handle, and which no probe detects."""

    name: str
    probe: str
    does: str


INJECTIONS = (
    Injection("no-kfd-node", "P02", "/dev/kfd is missing"),
    Injection("no-access", "P02", "opening /dev/kfd and the render node gives EACCES"),
    Injection("reset-in-progress", "P02", "opening /dev/kfd gives EAGAIN"),
    Injection("old-kfd", "P03", "GET_VERSION answers 1.8"),
    Injection("hidden-gpu", "P04", "the GPU's topology node cannot be read (device cgroup)"),
    Injection("unknown-target", "P04", "gfx_target_version is of an unknown chip"),
    Injection("user-queue-off", "P06", "amdgpu.user_queue is -1: no user queues"),
    Injection("firmware-old", "P06", "MEC and MES firmware below the user queues' minimum"),
    Injection("vm-busy", "P07", "ACQUIRE_VM gives EBUSY: another library owns KFD in this process"),
    Injection("counter-stuck", "P08", "the GPU counter does not move"),
    Injection("gpu-gone", "P08", "every ioctl on the GPU gives ENODEV"),
    Injection("small-bar", "P10", "256 MiB of BAR: CPU-visible VRAM is refused"),
    Injection("out-of-memory", "P10", "an allocation gives ENOMEM"),
    Injection("no-doorbell-domain", "P12", "GEM_CREATE in the doorbell domain gives EINVAL"),
    Injection("event-page-refused", "P13", "CREATE_EVENT with a page gives EINVAL"),
    Injection("cwsr-mismatch", "P14", "the kernel's context save area size differs from sysfs"),
    Injection("mes-add-failure", "P15", "MES refuses ADD_QUEUE: EIO"),
    Injection("doorbell-offset", "P17", "mapping the doorbells gives EFAULT"),
    Injection("lost-doorbell", "P18", "a doorbell write never reaches the CP"),
    Injection("fence-never-written", "P20", "RELEASE_MEM writes nothing"),
    Injection("no-eop", "P20", "the queue has no EOP buffer: RELEASE_MEM faults"),
    Injection("no-interrupt", "P22", "end-of-pipe interrupts are dropped"),
    Injection("ring-size-off-by-one", "P29", "the hardware's ring is half as long as the client's"),
    Injection("stale-icache", "P40", "the instruction cache ignores invalidation"),
    Injection("stale-hdp", "P41", "HDP flushes do nothing"),
    Injection("no-write-back", "P41", "GPU writes stay in GL2: system-scope write-backs do nothing"),
    Injection("lost-memory-event", "P42", "a fault signals no MEMORY event"),
    Injection("no-reset", "P44", "a reset fails: the GPU stays lost"),
    Injection("mes-remove-failure", "P45", "MES does not answer REMOVE_QUEUE: ETIME, then a reset"),
    Injection("wptr-rejected", "P48", "USERQ CREATE gives EINVAL for the wptr buffer"),
    Injection("page-tables-late", "P50", "GEM_VA updates become visible only with their timeline point"),
    Injection("vmid-not-inherited", "P51", "IBs run with VMID 0 even with bit 30"),
    Injection("fence-interrupt-lost", "P52", "PROTECTED_FENCE_SIGNAL completes nothing"),
    Injection("signal-before-wptr", "P52", "USERQ_SIGNAL sees the wptr from before the last submission"),
    Injection("shader-crash", "P32", "compiled shader code faults and takes the device process with it"),
    Injection("lane-value", "accept", "one lane computes one value wrong"),
    Injection("register-stuck", "accept", "a bit of a vector register is stuck at 1 in one lane"),
    Injection("vram-stuck-bit", "accept", "a bit of VRAM is stuck at 1"),
    Injection("vram-bit-flip", "accept", "a bit of VRAM flips once, some time after it was written"),
    Injection("short-vram", "accept", "half of the board's VRAM is missing"),
    Injection("missing-cus", "accept", "one compute unit of each shader array is missing"),
    Injection("link-narrow", "accept", "the PCIe link has half of its lanes"),
    Injection("link-drop", "accept", "the PCIe link falls to 2.5 GT/s under load"),
    Injection("clock-cap", "accept", "the shader clock stays at 1 GHz under load"),
    Injection("power-cap", "accept", "the power limit is half of the board's"),
    Injection("overheats", "accept", "the hot spot reaches its limit under load"),
    Injection("ecc-corrected", "accept", "memory errors that ECC corrects are counted under load"),
    Injection("ecc-uncorrected", "accept", "a memory error that ECC cannot correct"),
    Injection("pcie-errors", "accept", "corrected errors of the PCIe link are counted under load"),
    Injection("spontaneous-reset", "accept", "the driver resets the GPU once under load"),
    Injection("device-lost", PROGRAM, "the GPU is lost at a doorbell: its reset fails, and calls give ENODEV"),
    Injection("hung-queue", PROGRAM, "a queue hangs at a doorbell: nothing more of it runs"),
    Injection("slow-fence", PROGRAM, "the end of the pipe takes half a second"),
    Injection("guilty-context", PROGRAM, "a job of AMDGPU_CS times out at once: its context is guilty"),
    Injection("device-crash", "P20", "the device process ends at once when a doorbell is rung"),
)

BY_NAME = {row.name: row for row in INJECTIONS}
if len(BY_NAME) != len(INJECTIONS):
    raise ValueError("duplicate injection name")


@dataclass(slots=True)
class Aftermath:
    """What programs did after the first injected fault occurred: `calls` counts ioctls, `errors` the failed ones
    by (name, errno), except those of callers that were killed."""

    started: float = 0.0  # time.monotonic(); 0.0: no fault occurred yet
    calls: int = 0
    doorbells: int = 0
    errors: Counter[tuple[str, int]] = field(default_factory=Counter)

    def record_call(self, name: str, number: int) -> None:
        if self.started:
            self.calls += 1
            if number not in (0, errno.EINTR):
                self.errors[name, number] += 1

    def record_doorbell(self) -> None:
        self.doorbells += bool(self.started)


class Injector:
    """The injected faults of this machine. Thread-safe; `reached` counts the passes of every point, `occurred` the
    faults that occurred there."""

    def __init__(self, wanted: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._strikes: dict[str, tuple[int, int | None]] = {}  # name: first strike, last strike (None: no end)
        self.reached: dict[str, int] = {}
        self.occurred: Counter[str] = Counter()
        self.aftermath = Aftermath()
        for item in wanted:
            self.add(item)

    def add(self, text: str) -> None:
        name, first, last = parse(text)
        with self._lock:
            self._strikes[name] = (self.reached.get(name, 0) + first, last and self.reached.get(name, 0) + last)

    def number(self, name: str) -> int:
        """Return N of an enabled "name@N" or "name:N"; 1 without a number."""
        first, last = self._strikes[name]
        return last or first

    def remove(self, name: str) -> None:
        with self._lock:
            self._strikes.pop(name, None)

    def is_due(self, name: str) -> bool:
        """Count one pass of the point. Return whether the fault occurs now."""
        if name not in BY_NAME:
            raise ValueError(f"no injection {name!r}")
        if name not in self._strikes:
            return False
        with self._lock:
            count = self.reached.get(name, 0) + 1
            self.reached[name] = count
            first, last = self._strikes.get(name, (1, 0))
            due = first <= count and (last is None or count <= last)
            if due:
                self._record(name)
            return due

    def on(self, name: str) -> bool:
        """Return whether a persistent fault is enabled; this does not count as a pass."""
        if name not in BY_NAME:
            raise ValueError(f"no injection {name!r}")
        enabled = name in self._strikes
        if enabled and not self.occurred[name]:
            with self._lock:
                self._record(name)
        return enabled

    def _record(self, name: str) -> None:
        self.occurred[name] += 1
        self.aftermath.started = self.aftermath.started or time.monotonic()

    def report(self) -> dict[str, Any]:
        """Return the enabled faults, how often each occurred, and what programs did afterwards, as JSON.
        `seconds`: since the first fault, None without one."""
        after = self.aftermath
        with self._lock:
            rows = [BY_NAME[name] for name in self._strikes]
        faults = [{"name": row.name, "does": row.does, "occurred": self.occurred[row.name]} for row in rows]
        errors = [
            {"call": call, "errno": errno.errorcode.get(number, str(number)), "count": count}
            for (call, number), count in after.errors.most_common()
        ]
        seconds = time.monotonic() - after.started if after.started else None
        return {
            "faults": faults,
            "calls": after.calls,
            "doorbells": after.doorbells,
            "errors": errors,
            "seconds": seconds,
        }


def parse(text: str) -> tuple[str, int, int | None]:
    """Parse "name", "name:3" (the first three times) or "name@3" (the third time) into name, first and
    last strike."""
    for mark in ":@":
        name, result, number = text.partition(mark)
        if result:
            break
    if name not in BY_NAME:
        raise ValueError(f"unknown injection {name!r}; available: {', '.join(BY_NAME)}")
    if not result:
        return name, 1, None
    if not number.isdecimal() or int(number) < 1:
        raise ValueError(f"{text}: expected a count of 1 or more after {mark!r}")
    return name, (1 if mark == ":" else int(number)), int(number)
