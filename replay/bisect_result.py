"""The result of a bisection: the step and, if one can be named, its node and the first element that
differs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class FailingNode:
    """The failing node. `node` is its index among the graph's calls; `buffer` is its result, or the buffer that it
    corrupted. `element`: the first value that differs, None if only findings of the simulated device differ.
    `tapped`: it also differs when no memory is reused. `part`: of a fused node, the part that differs.
    """

    step: int
    graph: int
    key: tuple[int, ...]
    node: int
    label: str
    op: str
    buffer: str
    tapped: bool
    element: tuple[int, ...] | None = None
    want: str = ""
    got: str = ""
    differing: int = 0
    of: int = 0
    kernels: tuple[str, ...] = ()
    finding: str = ""
    stored: dict[str, Any] = field(default_factory=dict)  # by which kernel, workgroup, wave and lane
    fault: dict[str, Any] = field(
        default_factory=dict
    )  # of a page fault: who made it, where a simulated tier says so
    part: str = ""


@dataclass(slots=True)
class BisectResult:
    """The result of a bisection. `step` is the submission that differs or does not end, -1 if the failure is not
    reproduced: the tier has T-CPU's bits. `recorded`: how the recorded run differed from T-CPU, "" if it did not;
    `graph`: how a recorded graph differs from the one that the oracle builds from the model, "" if none does;
    `cause` is the first symptom: different bits, a finding, an error. `where` is None
    also if no node of the step could be named. `replays` is the number of replays, `allowed` is 2·log2
    of the nodes that ran."""

    tier: str
    where: FailingNode | None = None
    step: int = -1
    cause: str = ""
    replays: int = 0
    allowed: int = 0
    recorded: str = ""
    graph: str = ""
    lines: list[str] = field(default_factory=list)
    given: dict[str, np.ndarray] = field(default_factory=dict)  # what the node read, by name: for a log of its own
    made: dict[str, np.ndarray] = field(default_factory=dict)  # what T-CPU made of it
    before: dict[str, bytes] = field(default_factory=dict)  # state as the step found it, by allocation

    @property
    def failed(self) -> bool:
        return self.step >= 0

    @property
    def text(self) -> str:
        where = self.where
        if where is None and self.failed:
            return f"{self.tier}: step {self.step} {self.cause}; no node could be named"
        if where is None and self.graph:
            return f"{self.tier}: the recorded graph is not the model's: {self.graph}"
        if where is None:
            how = (
                f"but {self.recorded} when it was recorded"
                if self.recorded
                else "and had them when it was recorded"
            )
            return f"{self.tier}: not reproduced: every step has the bits of t_cpu, {how}"
        how = "" if where.tapped else ", only when memory is reused: aliasing, or a missing barrier"
        name = f"{where.op} {where.label} ({where.buffer})" + (f", its {where.part}" if where.part else "")
        return f"{self.tier}: step {where.step}, node {where.node}: {name}{how}"

    def as_dict(self) -> dict[str, Any]:
        if self.where is not None:
            return asdict(self.where)
        if not self.failed:
            return {"reproduced": False, "recorded": self.recorded} | ({"graph": self.graph} if self.graph else {})
        return {"step": self.step, "cause": self.cause}
