"""P46: many concurrent queues through KFD."""

from __future__ import annotations

import time
from typing import Any

from zinc_rt.pm4.packets import WaitRegMem, WriteData
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.probe_queue import FREE_AT, ProbeQueue
from zinc_rt.probes.outcome import T1, Outcome, check, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves

QUEUES = (2, 8, 32)


FENCES_EACH = 20


@probe("P46", "many queues", (T1,), hazard=1, needs=("P26",), seconds=90.0)
@proves(
    "more queues than hardware has make progress together, one of them waiting",
    passes_when=f"{', '.join(map(str, QUEUES))} queues of three priorities: every counter reaches {FENCES_EACH}",
)
@fails(
    symptom("starved", "rptr-stuck", "rptr-stopped", "no-fence"),
    "starvation: a waiting queue is not preempted (CWSR off), or the scheduler's policy",
    "amdgpu.cwsr_enable=1 and amdgpu.sched_policy=0; `dmesg | grep -i mes`",
)
def probe_many_queues(c: ProbeContext) -> Outcome:
    measure: dict[str, Any] = {}
    waiting = c.queue("waiting", ring_bytes=4096)
    waiting.memory.put32(FREE_AT, 0)
    held = waiting.submit([WaitRegMem(waiting.memory.gpu_va + FREE_AT, 1)], "held back")
    queues: list[ProbeQueue] = []
    for count in QUEUES:
        while len(queues) < count - 1:
            queues.append(c.queue(f"queue {len(queues)}", ring_bytes=4096, priority=(0, -7, 8)[len(queues) % 3]))
        start = time.monotonic()
        for number in range(1, FENCES_EACH + 1):
            for queue in queues:
                queue.submit(
                    [WriteData(queue.memory.gpu_va + FREE_AT, (number,), wr_confirm=1)], f"counter {number}"
                )
        for queue in queues:
            queue.ring.wait_until_idle(c.poll_seconds * 5)
            got = queue.memory.u32(FREE_AT)
            check(
                got == FENCES_EACH, "starved", f"{queue.ring.name} of {count} counted to {got}, not {FENCES_EACH}"
            )
        measure[f"{count}_queues_ms"] = round((time.monotonic() - start) * 1e3)
        check(not held.done(), "early", "the waiting queue did not")
    waiting.memory.put32(FREE_AT, 1)
    held.wait(c.poll_seconds)
    return passed(**measure)
