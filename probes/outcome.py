"""The outcome of a run of a probe, and the most likely cause of each kind of failure."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from zinc_rt.exec import DeadlineMissed
from zinc_rt.host.errors import ZincError

if TYPE_CHECKING:
    from zinc_rt.backends.amd.hang import HangReport

HOST, T1, T2, VULKAN = "host", "t1", "t2", "vulkan"
TIERS = (HOST, T1, T2, VULKAN)

Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a missed deadline. Positions in dwords; `rptr` uses the same scale as wptr."""

    wptr: int
    rptr: int
    ring_dw: int
    fence: str
    poison: str

    @property
    def symptom(self) -> str:
        """Return the state of rptr: never moved, stopped midway, or read everything (then the end of the
        pipe is missing)."""
        if self.wptr and self.rptr <= 0:
            return "rptr-stuck"
        return "rptr-stopped" if self.rptr < self.wptr else "no-fence"

    def text(self) -> str:
        return f"wptr {self.wptr}, rptr {self.rptr}, fence {self.fence}, poison {self.poison}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run of a probe. Plain data, because it is sent from the child to the parent."""

    status: Status
    reason: str = ""
    symptom: str = ""  # a short stable word that signatures look for
    measure: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    evidence: Evidence | None = None
    faults: tuple[str, ...] = ()  # page faults and resets seen meanwhile
    call: str = ""  # the system call that failed
    errno: int = 0
    cause: str = ""
    advice: str = ""
    report: str = ""  # the hang report, or a traceback
    hang: HangReport | None = None  # with the bytes of ring and IB, for --bundle
    log: tuple[str, ...] = ()  # what the kernel logged while this probe ran
    marks: tuple[str, ...] = ()  # what a simulated device came to meanwhile: zinc_rt/host/facts.py

    @property
    def text(self) -> str:
        """Return all of its texts, for signatures that search for a word."""
        return " ".join((self.reason, *self.faults, *self.notes))


@dataclass(frozen=True, slots=True)
class Signature:
    """A known failure: the first matching signature of a probe provides cause and advice."""

    matches: Callable[[Outcome], bool]
    cause: str
    advice: str


class ProbeFailed(ZincError):
    """A failed check. Contains the outcome."""

    exit_code = 1

    def __init__(self, symptom: str, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.outcome = Outcome("fail", reason, symptom, **more)


class ProbeStuck(DeadlineMissed):
    """A missed deadline, as raised by AmdRing."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def passed(*notes: str, **measure: Any) -> Outcome:
    return Outcome("pass", measure=measure, notes=notes)


def make_skip(reason: str, *, cause: str = "", advice: str = "", **measure: Any) -> Outcome:
    return Outcome("skip", reason, cause=cause, advice=advice, measure=measure)


def check(condition: bool, symptom: str, reason: str, **more: Any) -> None:
    if not condition:
        raise ProbeFailed(symptom, reason, **more)


# --- what signatures look for ---


def symptom(*words: str) -> Callable[[Outcome], bool]:
    return lambda outcome: outcome.symptom in words


def match_failed_call(call: str, *numbers: int) -> Callable[[Outcome], bool]:
    """Match a failed call. `call` is the end of its name, such as "CREATE_QUEUE"; without numbers any
    errno matches."""
    return lambda o: o.symptom == "errno" and o.call.endswith(call) and (not numbers or o.errno in numbers)


def match_message(word: str, *symptoms: str) -> Callable[[Outcome], bool]:
    """Match a word in the reason, a fault or a note."""
    return lambda o: word.lower() in o.text.lower() and (not symptoms or o.symptom in symptoms)


def is_device_lost(outcome: Outcome) -> bool:
    return outcome.errno == errno.ENODEV or outcome.symptom == "gpu-gone"
