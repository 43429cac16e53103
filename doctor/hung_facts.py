"""Read what a machine that hangs shows of its GPU: fences, interrupts, hardware queues, the log of MES, tasks.

A capture has two samples, some seconds apart: the files at their paths, and again below `later/`. Formats:
amdgpu_fence.c (amdgpu_fence_info), dqm_debugfs_hqds (kfd/hqds), amdgpu_mes.c (amdgpu_mes_event_log).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from zinc_rt.doctor.capture import LATER, MachineCapture

DEBUG = "sys/kernel/debug"
_RING = re.compile(
    r"--- ring \d+ \(([^)]+)\) ---\s+Last signaled fence\s+0x([0-9a-f]+)\s+Last emitted\s+0x([0-9a-f]+)"
)
_QUEUE = re.compile(r"(HIQ on MEC \d+ Pipe \d+ Queue \d+|CP Pipe \d+, Queue \d+)")
_REGISTERS = re.compile(r"^\s+[0-9a-f]{8}:((?: [0-9a-f]{8})+)\s*$")
# Places in the dump of a hardware queue, which begins with CP_MQD_BASE_ADDR (gc_11_0_0_offset.h, gc_12_0_0's).
_ACTIVE, _RPTR, _CONTROL, _WPTR = 2, 10, 17, 54
_NOTHING = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class HardwareQueueState:
    """One hardware queue (HQD). Positions in dwords; `wptr` is the last value written to the doorbell."""

    place: str
    active: bool
    rptr: int
    wptr: int
    gone: bool = False  # its registers read as all ones

    @property
    def pending(self) -> bool:
        return self.active and self.rptr != self.wptr


@dataclass(frozen=True, slots=True)
class HungSample:
    """One sample. None: not read."""

    fences: dict[str, tuple[int, int]] | None  # ring → last signaled, last emitted
    interrupts: int | None
    queues: tuple[HardwareQueueState, ...] | None
    mes_log: str | None
    created: int | None  # compute queues that KFD has created (kfd/mqds)


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task in uninterruptible sleep, and the kernel function in which it waits."""

    pid: str
    name: str
    function: str


@dataclass(frozen=True, slots=True)
class HungFacts:
    first: HungSample
    later: HungSample
    tasks: tuple[WaitingTask, ...] | None
    dump: str | None  # the beginning of a device core dump


def read_hung_facts(capture: MachineCapture) -> HungFacts:
    dumps = [name for name in capture.files if name.endswith("/devcoredump/data") or name == "devcoredump.txt"]
    dump = (capture.text(dumps[0]) or "") if dumps else None
    return HungFacts(_read_sample(capture, ""), _read_sample(capture, LATER), _parse_tasks(capture), dump)


def _read_sample(capture: MachineCapture, prefix: str) -> HungSample:
    def matching_texts(pattern: str) -> list[str]:
        wanted = re.compile(rf"{prefix}{DEBUG}/{pattern}")
        return [capture.text(name) or "" for name in sorted(capture.files) if wanted.fullmatch(name)]

    fences, logs = (
        matching_texts(r"dri/[\w:.]+/amdgpu_fence_info"),
        matching_texts(r"dri/[\w:.]+/amdgpu_mes_event_log"),
    )
    queues, created = matching_texts("kfd/hqds"), matching_texts("kfd/mqds")
    return HungSample(
        {name: (int(result, 16), int(sent, 16)) for text in fences for name, result, sent in _RING.findall(text)}
        if fences
        else None,
        _count_interrupts(capture.text(f"{prefix}proc/interrupts")),
        tuple(queue for text in queues for queue in _parse_queues(text)) if queues else None,
        "\n".join(logs) if logs else None,
        sum(len(re.findall(r"^\s*Compute queue on device", text, re.M)) for text in created) if created else None,
    )


def _count_interrupts(text: str | None) -> int | None:
    """Return the number of amdgpu's interrupts on all processors; None if there is no line for it."""
    lines = [line for line in (text or "").splitlines() if re.search(r"\bamdgpu\b", line)]
    if not lines:
        return None
    return sum(int(word) for line in lines for word in re.findall(r"(?<=\s)\d+(?=\s)", line.partition(":")[2]))


def _parse_queues(text: str) -> list[HardwareQueueState]:
    parts = _QUEUE.split(text)
    result = []
    for part, body in zip(parts[1::2], parts[2::2], strict=True):
        words: list[int] = []
        for line in body.splitlines():
            matched = _REGISTERS.match(line)
            if matched:
                words += [int(word, 16) for word in matched[1].split()]
            elif words:
                break  # SDMA engines, or the next device
        if len(words) <= _WPTR:
            continue
        size_dw = 2 << (words[_CONTROL] & 0x3F)  # QUEUE_SIZE of CP_HQD_PQ_CONTROL: log2 of dwords, less one
        gone = all(word == _NOTHING for word in words)
        active = bool(words[_ACTIVE] & 1) and not gone
        result.append(HardwareQueueState(part, active, words[_RPTR], words[_WPTR] & (size_dw - 1), gone))
    return result


def _parse_tasks(capture: MachineCapture) -> tuple[WaitingTask, ...] | None:
    """The file tasks.txt, `ps -eo pid,stat,comm,wchan:40`: those in state D."""
    text = capture.text("tasks.txt")
    if text is None:
        return None
    rows = [line.split() for line in text.splitlines()]
    return tuple(
        WaitingTask(words[0], " ".join(words[2:-1]), words[-1])
        for words in rows
        if len(words) >= 4 and words[0].isdecimal() and words[1].startswith("D")
    )
