"""Rules about a machine that hangs without a message, from two samples of what its GPU shows (--hung)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zinc_rt.doctor.hung_facts import HungFacts, read_hung_facts
from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.rule import BOTH, DoctorRule, Observation

STORM = 50_000  # interrupts between two samples
BUSY = 90  # percent
MES_RINGS = ("mes", "kiq")
_RESET = re.compile(r"gpu_recover|_reset|drm_sched_(?:stop|fini)|reset_work", re.I)
_MEMORY = re.compile(r"ttm_|svm_|migrate|_evict|amdgpu_bo|hmm_|dma_resv|dma_fence", re.I)
_DRIVER = re.compile(r"amdgpu|kfd|drm_|dm_|smu_|psp_|rpm_|pci_pm|pm_runtime", re.I)
_COMPARE = (
    "what decides: compare the queue's write pointer in the program's memory with CP_HQD_PQ_WPTR (the hang report "
    "of zinc-rt prints both; others: umr -sq). Memory ahead: the doorbell was lost. Equal, and the fence is "
    "reached in memory: a wake-up was lost (interrupts). Equal, and it is not written: RELEASE_MEM was lost"
)


def _find_stuck_rings(facts: HungFacts) -> list[str]:
    """Report rings with work that did not advance between the samples."""
    before, after = facts.first.fences or {}, facts.later.fences or {}
    return [
        name for name, (result, sent) in after.items() if result != sent and before.get(name, (None,))[0] == result
    ]


def _format_ring_lines(facts: HungFacts, names: list[str]) -> tuple[str, ...]:
    after = facts.later.fences or {}
    return tuple(
        f"amdgpu_fence_info: {name}: signaled 0x{after[name][0]:08x}, emitted 0x{after[name][1]:08x}, twice"
        for name in names
    )


def _is_mes(ring: str) -> bool:
    return any(word in ring for word in MES_RINGS)


def _check_mes(machine: InspectedMachine) -> Iterator[Observation]:
    facts = read_hung_facts(machine.capture)
    rings = [name for name in _find_stuck_rings(facts) if _is_mes(name)]
    if rings:
        yield Observation(evidence=_format_ring_lines(facts, rings))
        return
    queues, created = facts.later.queues, facts.later.created
    unmapped = queues is not None and not any(queue.active for queue in queues if "CP Pipe" in queue.place)
    quiet = facts.first.mes_log == facts.later.mes_log
    if machine.hung and created and unmapped and quiet and not any(queue.gone for queue in queues or ()):
        yield Observation(
            f"MES does not run {created} queues that KFD has created: none is on the hardware",
            (f"kfd/mqds: {created} compute queues", "kfd/hqds: no queue is active")
            + (("amdgpu_mes_event_log: unchanged",) if facts.later.mes_log else ()),
        )


def _check_rings(machine: InspectedMachine) -> Iterator[Observation]:
    facts = read_hung_facts(machine.capture)
    rings = [name for name in _find_stuck_rings(facts) if not _is_mes(name)]
    if rings:
        yield Observation(
            f"the driver's ring {', '.join(rings)} has work and makes no progress",
            _format_ring_lines(facts, rings),
        )


def _check_queues(machine: InspectedMachine) -> Iterator[Observation]:
    facts = read_hung_facts(machine.capture)
    before = {queue.place: queue for queue in facts.first.queues or ()}
    stuck = [queue for queue in facts.later.queues or () if queue.pending and before.get(queue.place) == queue]
    if not stuck:
        return
    busy = any((gpu.busy_percent or 0) >= BUSY for gpu in machine.is_relevant)
    idle = any(gpu.busy_percent is not None and gpu.busy_percent < BUSY for gpu in machine.is_relevant)
    title = f"{len(stuck)} hardware queues have work and make no progress"
    reason = "either its waves do not end, or a packet waits for a value that does not come"
    if busy:
        title, reason = (
            f"{title}: a kernel does not end",
            "the GPU is busy: waves run, and the queue waits for them",
        )
    elif idle:
        title = f"{title}: a packet waits"
        reason = "the GPU is idle: no wave runs; the packet at the read pointer waits for memory or another queue"
    lines = [
        f"kfd/hqds: {item.place}: rptr 0x{item.rptr:x}, wptr 0x{item.wptr:x}, in both samples" for item in stuck
    ]
    yield Observation(title, tuple(lines[:3]), why=reason)


def _check_gone_queues(machine: InspectedMachine) -> Iterator[Observation]:
    queues = read_hung_facts(machine.capture).later.queues or read_hung_facts(machine.capture).first.queues or ()
    if queues and all(queue.gone for queue in queues):
        yield Observation(evidence=(f"kfd/hqds: {len(queues)} queues, every register is ffffffff",))


def _find_advanced_rings(facts: HungFacts) -> list[str]:
    before, after = facts.first.fences or {}, facts.later.fences or {}
    return [name for name, (result, _) in after.items() if name in before and before[name][0] != result]


def _has_advanced(facts: HungFacts) -> bool:
    """Return whether a ring of the driver or a hardware queue advanced between the samples."""
    before = {queue.place: queue.rptr for queue in facts.first.queues or ()}
    queues = [
        queue for queue in facts.later.queues or () if queue.active and before.get(queue.place) != queue.rptr
    ]
    return bool(queues or _find_advanced_rings(facts))


def _check_lost_interrupts(machine: InspectedMachine) -> Iterator[Observation]:
    """Only the driver's own rings raise an interrupt for each fence; a program with a user queue may poll."""
    facts = read_hung_facts(machine.capture)
    before, after = facts.first.interrupts, facts.later.interrupts
    rings = _find_advanced_rings(facts)
    if before is not None and before == after and rings:
        yield Observation(
            evidence=(f"proc/interrupts: {after}, twice", f"amdgpu_fence_info: {', '.join(rings[:3])} advanced")
        )


def _check_interrupt_storm(machine: InspectedMachine) -> Iterator[Observation]:
    facts = read_hung_facts(machine.capture)
    before, after = facts.first.interrupts, facts.later.interrupts
    if before is not None and after is not None and after - before >= STORM:
        yield Observation(evidence=(f"proc/interrupts: {before}, later {after}",))


def _check_reset(machine: InspectedMachine) -> Iterator[Observation]:
    tasks = read_hung_facts(machine.capture).tasks or ()
    waiting = [task for task in tasks if _RESET.search(task.function)]
    start = machine.log.named("reset") if machine.log else ()
    open_reset = bool(start) and "begin" in start[-1].text.lower()
    if waiting or (machine.hung and open_reset and not (machine.log and machine.log.named("reset-failed"))):
        lines = [f"tasks.txt: {task.name} (pid {task.pid}) in {task.function}" for task in waiting]
        yield Observation(
            evidence=(*lines[:3], *(f"kernel.log: {event.text}" for event in start[-1:] if open_reset))
        )


def _check_resume(machine: InspectedMachine) -> Iterator[Observation]:
    for gpu in machine.is_relevant:
        line = machine.capture.line(f"later/sys/class/drm/{gpu.card}/device/power/runtime_status")
        if gpu.runtime_status in ("resuming", "suspending") and line == gpu.runtime_status:
            yield Observation(
                f"{gpu.title} has been {gpu.runtime_status} for the whole time between two samples",
                (f"power/runtime_status: {line}, in both samples",),
                gpu.address,
            )


def _check_memory(machine: InspectedMachine) -> Iterator[Observation]:
    tasks = [task for task in read_hung_facts(machine.capture).tasks or () if _MEMORY.search(task.function)]
    if tasks and not any(_RESET.search(task.function) for task in read_hung_facts(machine.capture).tasks or ()):
        yield Observation(
            evidence=tuple(f"tasks.txt: {task.name} (pid {task.pid}) in {task.function}" for task in tasks[:3])
        )


def _check_blocked_tasks(machine: InspectedMachine) -> Iterator[Observation]:
    tasks = read_hung_facts(machine.capture).tasks or ()
    waiting = [
        task
        for task in tasks
        if _DRIVER.search(task.function) and not _RESET.search(task.function) and not _MEMORY.search(task.function)
    ]
    if waiting:
        yield Observation(
            evidence=tuple(f"tasks.txt: {item.name} (pid {item.pid}) in {item.function}" for item in waiting[:3])
        )


def _check_idle(machine: InspectedMachine) -> Iterator[Observation]:
    """All sampled values are idle, but a program has the GPU open."""
    facts = read_hung_facts(machine.capture)
    first, later = facts.first, facts.later
    if not machine.hung or later.fences is None or _find_stuck_rings(facts) or _has_advanced(facts):
        return
    if later.interrupts is None or first.interrupts != later.interrupts or not machine.users:
        return
    if later.queues is None:
        yield Observation(
            "the driver's rings are at rest and no interrupt arrives, while a program has the GPU open",
            (f"proc/interrupts: {later.interrupts}, in both samples", "amdgpu_fence_info: every ring has retired"),
            why="MES may be dead without anybody asking it, the queue may stand, or the program may wait for "
            "something else",
            next="read the queues: sudo cat /sys/kernel/debug/kfd/hqds, twice. Then one message to MES decides: "
            "create a queue in another program (rocminfo); with a dead MES that times out after some seconds. "
            "The driver then resets the GPU: save your work",
        )
    elif not any(queue.pending for queue in later.queues) and any(queue.active for queue in later.queues):
        yield Observation(
            evidence=(
                f"proc/interrupts: {later.interrupts}, in both samples",
                "kfd/hqds: the read pointer of every active queue has reached its write pointer",
            )
        )


def _check_core_dump(machine: InspectedMachine) -> Iterator[Observation]:
    dump = read_hung_facts(machine.capture).dump
    if dump and machine.hung:
        process = re.search(r"process_name: *(\S+) *(?:PID: *(\d+))?", dump)
        by = f" of {process[1]}" + (f" (pid {process[2]})" if process[2] else "") if process else ""
        yield Observation(
            f"the driver kept a core dump of a hang{by}", (f"devcoredump: {dump.strip().splitlines()[0][:100]}",)
        )


_KEEP = "keep the capture before the reboot: zinc-rt doctor --hung --capture DIR"
RULES = (
    DoctorRule(
        "hung.gone",
        "broken",
        "the GPU's registers read as all ones: it is not on the bus any more",
        "nothing answers: every program that uses it waits for ever",
        "power-cycle the machine; then lspci -vvv above the card (link, power cables). Until then --hazard 0",
        BOTH,
        _check_gone_queues,
    ),
    DoctorRule(
        "hung.reset",
        "broken",
        "a reset of the GPU began and does not end",
        "every program that uses the GPU waits for it, and kill does not end them",
        f"{_KEEP}; power-cycle the machine. What decides: sudo cat /proc/PID/stack of the task that resets",
        BOTH,
        _check_reset,
    ),
    DoctorRule(
        "hung.resume",
        "broken",
        "the GPU does not finish its change of power state",
        "programs wait until it is awake",
        "reboot, then amdgpu.runpm=0. What decides: sudo cat /proc/PID/stack of a kworker in rpm_resume",
        BOTH,
        _check_resume,
    ),
    DoctorRule(
        "hung.mes",
        "broken",
        "MES, the scheduler firmware, does not answer",
        "it maps and removes every compute queue: none advances until the GPU is reset",
        f"{_KEEP}; then reboot. What decides between MES versions: amdgpu_mes_event_log of both samples",
        BOTH,
        _check_mes,
    ),
    DoctorRule(
        "hung.ring",
        "broken",
        "a ring of the driver has work and makes no progress",
        "its engine stands: the driver's timeout should report it, unless it is off or longer than the wait",
        "wait for the driver's timeout (amdgpu.lockup_timeout: some seconds for gfx, up to a minute for compute); "
        "then read the log and devcoredump",
        BOTH,
        _check_rings,
    ),
    DoctorRule(
        "hung.queue",
        "broken",
        "a hardware queue has work and makes no progress",
        "either its waves do not end, or a packet waits for a value that does not come",
        "what decides: waves on the GPU (sudo umr -wa). Some: the kernel does not end, and their program counter "
        "says where. None: the packet at the read pointer waits (sudo umr -sq, or the hang report of zinc-rt)",
        BOTH,
        _check_queues,
    ),
    DoctorRule(
        "hung.interrupts",
        "broken",
        "work of the GPU ends, but none of its interrupts arrives",
        "programs that sleep until an interrupt never wake up",
        "iommu=pt, another slot, a BIOS update; check amdgpu.msi and pci=nomsi. What decides: whether a program "
        "that polls (HSA_ENABLE_INTERRUPT=0) runs on",
        BOTH,
        _check_lost_interrupts,
    ),
    DoctorRule(
        "hung.storm",
        "broken",
        "the GPU raises interrupts without end",
        "a processor does nothing else: faults that repeat, or an event that nobody clears",
        "what decides: sudo dmesg for page faults; `amdgpu.noretry=1` if retry faults are on",
        BOTH,
        _check_interrupt_storm,
    ),
    DoctorRule(
        "hung.memory",
        "broken",
        "a program waits in the kernel for memory of the GPU",
        "evictions or migrations wait for a fence that does not come, or for free memory",
        "what decides: free memory and swap (/proc/meminfo), and which fence: /sys/kernel/debug/dma_buf/bufinfo",
        BOTH,
        _check_memory,
    ),
    DoctorRule(
        "hung.task",
        "broken",
        "a program waits in the driver and cannot be killed",
        "another task holds what it waits for",
        "what decides: sudo cat /proc/PID/stack of each of them: the one that waits for hardware is the cause",
        BOTH,
        _check_blocked_tasks,
    ),
    DoctorRule(
        "hung.idle",
        "broken",
        "the GPU has finished all that it was given, while a program waits",
        "a doorbell or a wake-up was lost, a fence was not written, or the program waits for something else",
        _COMPARE,
        BOTH,
        _check_idle,
    ),
    DoctorRule(
        "hung.dump",
        "warning",
        "the driver kept a core dump of a hang",
        "it has the registers and the ring of the moment when the driver gave up",
        "sudo cp /sys/class/drm/card*/device/devcoredump/data dump.txt: it is deleted after five minutes",
        BOTH,
        _check_core_dump,
    ),
)
