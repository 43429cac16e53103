"""One request of a workload."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.sched.tenant import Priority


@dataclass(frozen=True, slots=True)
class Arrival:
    """Arrival time in seconds, prompt tokens and answer tokens. `line`: of the input file.

    Requests of a tenant with the same `prefix` start with the same tokens, and each continues with the answer
    of the previous one.
    """

    at: float
    tenant: str
    prompt: int
    output: int
    priority: Priority | None = None  # None: its tenant's
    prefix: str = ""
    line: int = 0
