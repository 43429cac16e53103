"""One request of a workload."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.sched.tenant import Priority


@dataclass(frozen=True, slots=True)
class Arrival:
    """At so many seconds, a prompt of so many tokens, making so many. `line`: of the file it was read from.

    Requests of a tenant with the same `prefix` begin with the same tokens, and what one makes is how the next goes
    on.
    """

    at: float
    tenant: str
    prompt: int
    output: int
    priority: Priority | None = None  # None: its tenant's
    prefix: str = ""
    line: int = 0
