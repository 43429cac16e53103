"""What is asked of every peer, and what comes back: plain data, whoever computed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zinc_rt.validate.compare.child import ChildRun


@dataclass(frozen=True, slots=True)
class PeerTask:
    """One prompt for the values, one workload for the speed. `text` is empty where ids were given: some programs
    take text only. `timeout_seconds`: of each program that is run. `folder`: for files that peers leave."""

    model: Path
    tokens: tuple[int, ...]
    text: str
    folder: Path
    values: bool = True
    speed: bool = True
    prompt_tokens: int = 128
    new_tokens: int = 64
    runs: int = 3
    ctx: int | None = None
    device: str = "auto"
    ordering: str = "canonical-1"
    timeout_seconds: float = 600.0

    @property
    def ids(self) -> str:
        return ",".join(map(str, self.tokens))


@dataclass(frozen=True, slots=True)
class Sample:
    """Some elements of a value, as a program prints them. `at`: indices [n, 2] of (token, dim); `rows`: how many
    tokens the value has, of which a graph may keep the last only. `digits`: after the decimal point."""

    at: np.ndarray
    values: np.ndarray
    rows: int
    digits: int


@dataclass(slots=True)
class PeerOutcome:
    """What came back. `problem`: why there is less than was asked for; `hung`: a program ran out of time.
    `skipped`: nothing was run, for `problem`; `next` says how to get it. Arrays are f32: logits [T, V], layers [T,
    D] by number."""

    peer: str
    version: str = ""
    backend: str = ""
    simulated: bool = False
    software: bool = False  # a GPU's driver on this machine's processor
    ran: list[ChildRun] = field(default_factory=list)
    logits: np.ndarray | None = None
    layers: dict[int, np.ndarray] = field(default_factory=dict)
    sampled_logits: Sample | None = None
    sampled_layers: dict[int, Sample] = field(default_factory=dict)
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    problem: str = ""
    next: str = ""
    hung: bool = False
    failed: bool = False
    skipped: bool = False
    notes: list[str] = field(default_factory=list)

    def take(self, ran: ChildRun, what: str) -> bool:
        """Keep a program's run; whether it ended well. The first failure is the outcome's problem."""
        self.ran.append(ran)
        if ran.ok:
            return True
        self.hung = self.hung or ran.timed_out
        self.failed = True
        self.problem = self.problem or f"{what}: {ran.why}"
        return False


@dataclass(frozen=True, slots=True)
class ComparedPeer:
    """An engine to compare. `run` never raises for what a program does; `absent` is why it cannot run here, with
    how to get it."""

    name: str
    run: Callable[[PeerTask], PeerOutcome]
    absent: tuple[str, str] | None = None


def skipped(peer: ComparedPeer) -> PeerOutcome:
    assert peer.absent is not None
    return PeerOutcome(peer.name, problem=peer.absent[0], next=peer.absent[1], skipped=True)
