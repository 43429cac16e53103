"""The task given to every peer and its outcome, as plain data that is independent of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zinc_rt.validate.compare.child import ChildRun


@dataclass(frozen=True, slots=True)
class PeerTask:
    """One prompt for the values, and one workload for the speed. `text` is empty if ids were given; some programs
    accept text only. `timeout_seconds` applies to each program. `folder` is for the peers' files.
    """

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
    """Some elements of a value, as printed by a program. `at` are indices [n, 2] of (token, dim). `rows` is the
    number of tokens of the value; a graph may keep only the last. `digits` counts digits after the decimal point.
    """

    at: np.ndarray
    values: np.ndarray
    rows: int
    digits: int


@dataclass(slots=True)
class PeerOutcome:
    """The outcome of a peer. `problem` is the reason for missing results. `hung`: a program timed out. `skipped`:
    nothing ran, because of `problem`; `next` describes how to install it. Arrays are f32: logits [T, V], layers
    [T, D] by number.
    """

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
        """Record a program's run and return whether it succeeded. The first failure becomes the outcome's
        problem.
        """
        self.ran.append(ran)
        if ran.ok:
            return True
        self.hung = self.hung or ran.timed_out
        self.failed = True
        self.problem = self.problem or f"{what}: {ran.failure_reason}"
        return False


@dataclass(frozen=True, slots=True)
class ComparedPeer:
    """An engine to compare. `run` never raises for a failure of a program. `absent` is the reason why it cannot
    run here, with instructions to install it.
    """

    name: str
    run: Callable[[PeerTask], PeerOutcome]
    absent: tuple[str, str] | None = None


def make_skipped(peer: ComparedPeer) -> PeerOutcome:
    assert peer.absent is not None
    return PeerOutcome(peer.name, problem=peer.absent[0], next=peer.absent[1], skipped=True)
