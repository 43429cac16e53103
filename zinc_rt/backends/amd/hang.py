"""Hang reports: the state of the ring, the fence and the kernel log when a deadline was missed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.page_fault import UNSEEN, SimulatedFault
from zinc_rt.backends.base import Device
from zinc_rt.exec import DeadlineMissed
from zinc_rt.ir.graph import Node
from zinc_rt.pm4.generation import Generation

SCHEMA = "zinc-rt-hang/1"


UNWATCHED = (
    "by this program's deadline only: amdgpu's hang detection is armed by USERQ_SIGNAL, which T2 does not call, "
    "because FREE of a hung queue would then wait without limit (Linux 6.19 and later)"
)


@dataclass(frozen=True, slots=True)
class RingState:
    """Ring positions in dwords. `consumed_dw` is rptr on wptr's scale; `wptr_memory` is the value that the GPU can
    read."""

    name: str
    kind: str
    queue_id: int
    ring_va: int
    ring_dw: int
    wptr_dw: int
    wptr_memory: int
    rptr_dw: int
    consumed_dw: int


@dataclass(frozen=True, slots=True)
class FenceState:
    """The state of a fence. `guard`: how the poison around the fence was damaged; None if it is intact."""

    va: int
    memory: int
    seen: int
    submitted: int
    guard: str | None


@dataclass(frozen=True, slots=True)
class SubmissionState:
    name: str
    start_dw: int
    end_dw: int
    fence_value: int
    state: str  # finished, fetched, being fetched, not fetched
    ib_name: str = ""
    ib_va: int = 0
    ib_dw: int = 0


@dataclass(frozen=True, slots=True)
class FaultState:
    """A GPU page fault, with the nearest allocation and the submissions whose packets name it, from any
    driver. `seen`: details that only a simulated device provides."""

    text: str
    va: int
    allocation: str
    submissions: tuple[str, ...]
    seen: SimulatedFault | None = None


@dataclass(frozen=True, slots=True)
class HangReport:
    """The report of a hang. `window` is the ring around rptr, `ib` the last called indirect buffer, both
    disassembled."""

    what: str
    why: str
    last_packet: str
    ring: RingState
    fence: FenceState
    submissions: tuple[SubmissionState, ...]
    window: str
    ib: str
    illegal: tuple[str, ...]  # what the linter finds in both
    incidents: tuple[str, ...]
    faults: tuple[FaultState, ...]
    waves: tuple[str, ...]  # that have begun and not ended, as only a simulated device knows
    generation: Generation
    device: Device
    tier: str
    kmd_log: tuple[str, ...]  # since the backend was opened
    kmd_log_missing: str = ""  # why there is none
    ring_words: bytes = field(default=b"", repr=False)
    ib_words: bytes = field(default=b"", repr=False)
    core_dump: bytes = field(default=b"", repr=False)
    node: Node | None = None  # at which a replay stopped, where that is known
    seen_at: float = field(default_factory=time.time)

    def text(self) -> str:
        simulated = f" (simulated, {self.device.profile or 'default profile'})" if self.device.simulated else ""
        ring, fence = self.ring, self.fence
        written = f"{fence.memory:#x}" if fence.memory else "0: never written"
        parts = [
            f"hang     {self.what}",
            f"why      {self.why}",
            f"packet   {self.last_packet}",
            *([f"node     {self.node!r}"] if self.node is not None else []),
            f"device   {self.device.name} {self.device.arch}{simulated}, tier {self.tier}",
            f"queue    {ring.kind} {ring.queue_id}, ring of {ring.ring_dw} dwords at {ring.ring_va:#x}",
            f"wptr     {ring.wptr_dw} (place {ring.wptr_dw % ring.ring_dw:#x}), in memory {ring.wptr_memory}",
            f"rptr     {ring.rptr_dw:#x}: {ring.consumed_dw}, {ring.wptr_dw - ring.consumed_dw} behind wptr",
            f"fence    {fence.va:#x} holds {written}; {fence.submitted} submitted, {fence.seen} seen",
            f"poison   {fence.guard or 'intact'}",
        ]
        if ring.kind == "userq":
            parts.append(f"watch    {UNWATCHED}")
        parts += [f"event    {incident}" for incident in self.incidents] or ["event    none"]
        for fault in self.faults:
            parts.append(f"fault    {fault.va:#x}: {fault.allocation}")
            parts.append(f"         named by: {', '.join(fault.submissions) or 'no packet in flight'}")
            if fault.seen is not None:
                parts.append("seen     by the simulated device; of this a GPU tells only the page and why")
                parts += [f"         {line}" for line in fault.seen.lines()]
            else:
                parts.append(f"seen     {UNSEEN}")
        parts += [f"wave     {wave}" for wave in self.waves]
        parts += [f"illegal  {item}" for item in self.illegal]
        parts += ["", "submissions, oldest first"]
        parts += [_format_submission(submission) for submission in self.submissions] or ["  none"]
        parts += ["", "ring around rptr (place in the ring, dword, meaning)", self.window or "  empty"]
        if self.ib:
            parts += ["", "indirect buffer called last", self.ib]
        parts += ["", "kernel log since start"]
        parts += [f"  {line}" for line in self.kmd_log]
        if not self.kmd_log:
            parts.append(f"  {self.kmd_log_missing or 'nothing new'}")
        return "\n".join(parts) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data; raw bytes are in separate files."""
        body = {"schema": SCHEMA, **asdict(replace(self, node=None))}
        body["node"] = repr(self.node) if self.node is not None else ""
        for name in ("ring_words", "ib_words", "core_dump"):
            body[f"{name}_bytes"] = len(body.pop(name))
        body["generation"] = self.generation.name.lower()
        return body

    def save(self, parent: Path) -> Path:
        """Write the report to a new folder in `parent`: report.txt, report.json, ring.bin, ib.bin,
        kernel.log, devcoredump.bin, without empty files. Raise OSError."""
        parent.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.seen_at))
        for number in range(10_000):
            folder = parent / f"hang-{stamp}-{number:03}"
            try:
                folder.mkdir()
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(f"{parent}: too many hang reports of {stamp}; delete some")
        (folder / "report.txt").write_text(self.text(), encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(self.as_dict(), indent=1), encoding="utf-8")
        log = "\n".join(self.kmd_log).encode()
        for name, content in (
            ("ring.bin", self.ring_words),
            ("ib.bin", self.ib_words),
            ("kernel.log", log),
            ("devcoredump.bin", self.core_dump),
        ):
            if content:
                (folder / name).write_bytes(content)
        return folder


class Hang(DeadlineMissed):
    """Raised if work did not finish in time, or cannot finish. `report` has the reason, `bundle` the saved
    folder.
    """

    def __init__(self, report: HangReport, bundle: Path | None, not_saved: str = "") -> None:
        self.report = report
        self.node = report.node
        self.bundle = bundle
        where = f"read {bundle / 'report.txt'}" if bundle else f"no bundle was saved: {not_saved}"
        super().__init__(f"{report.what}: {report.why}; at {report.last_packet}", next=where)


def _format_submission(submission: SubmissionState) -> str:
    called = (
        f", calls {submission.ib_name} ({submission.ib_dw} dwords at {submission.ib_va:#x})"
        if submission.ib_dw
        else ""
    )
    fence = f"fence {submission.fence_value}" if submission.fence_value else "no fence"
    return (
        f"  {submission.start_dw:>8} to {submission.end_dw:<8} {fence:<12} {submission.state:<14} "
        f"{submission.name}{called}"
    )
