"""The texts of a bisection: the next run, its progress, the verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession
from zinc_rt.doctor.bringup.bisect_env.model import ENOUGH, Cause, CauseModel
from zinc_rt.doctor.bringup.bisect_env.propose import Proposal
from zinc_rt.doctor.bringup.bisect_env.variables import KINDS, Assignment

SHOWN_CAUSES = 5
INDENT = 11


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session, and the results of its runs. `beliefs` [causes], `posterior` [1, rates, hypotheses]."""

    session: BisectSession
    model: CauseModel
    beliefs: np.ndarray
    posterior: np.ndarray

    @property
    def best(self) -> Cause:
        return self.model.causes[int(self.beliefs.argmax())]

    @property
    def confidence(self) -> float:
        return float(self.beliefs.max())

    @property
    def ended(self) -> bool:
        return self.confidence >= ENOUGH

    def likeliest(self) -> list[tuple[Cause, float]]:
        order = np.argsort(-self.beliefs, kind="stable")[:SHOWN_CAUSES]
        return [(self.model.causes[int(at)], float(self.beliefs[at])) for at in order]


def percent(share: float) -> str:
    return f"{share:.0%}" if share < 0.99 else f"{min(share, 0.9999):.2%}"


def row(name: str, *words: str) -> str:
    return f"{name:<{INDENT}}" + "  ".join(words)


def setting(state: SessionState, run: Assignment) -> dict[str, str]:
    return {v.name: v.values[at] for v, at in zip(state.session.problem.variables, run, strict=True)}


def changes(state: SessionState, run: Assignment) -> list[int]:
    return [at for at, (old, new) in enumerate(zip(state.session.now, run, strict=True)) if old != new]


def task(state: SessionState, run: Assignment, proposal: Proposal | None, journal: str) -> str:
    """Return the values to set, the test to run and the command that records the result."""
    variables, now = state.session.problem.variables, state.session.now
    changed = changes(state, run)
    lines = [row("run", f"{len(state.session.runs) + 1}: {_burden(state, changed, proposal)}")]
    for at in changed:
        variable = variables[at]
        lines.append(row("set", f"{variable.name}: {variable.values[now[at]]} -> {variable.values[run[at]]}"))
        lines.append(" " * INDENT + f"  {variable.how(run[at])}")
    stays = [f"{v.name} {v.values[run[at]]}" for at, v in enumerate(variables) if at not in changed]
    if stays:
        lines.append(row("leave", ", ".join(stays)))
    lines.append(row("test", state.session.problem.test or "the command that fails on the bad machine"))
    lines.append(row("then", f"zinc-rt bisect-env record pass|fail|unclear{journal}"))
    lines.append(row("", f"or, if it cannot be set up: zinc-rt bisect-env record --could-not{journal}"))
    return "\n".join(lines)


def _burden(state: SessionState, changed: list[int], proposal: Proposal | None) -> str:
    if not changed:
        words = "no change, run it again"
    else:
        kinds = [KINDS[state.session.problem.variables[at].kind] for at in changed]
        once = max(kinds, key=lambda kind: kind.once_minutes).once
        plural = "s" if len(changed) > 1 else ""
        words = f"{len(changed)} change{plural}" + (f", {once}" if once else "")
    return words + (f", about {proposal.minutes:.0f} minutes; tells {proposal.bits:.2f} bits" if proposal else "")


def suspects(state: SessionState) -> str:
    """Return the most likely causes."""
    lines = [row("suspects", f"{percent(belief):>6}  {cause.text}") for cause, belief in state.likeliest()]
    return "\n".join([lines[0], *(" " * INDENT + line[INDENT:] for line in lines[1:])])


def history(state: SessionState) -> str:
    lines = []
    good = state.session.problem.good
    for number, run in enumerate(state.session.runs, 1):
        names = [
            f"{v.name} {v.values[value]}"
            for v, value, fine in zip(state.session.problem.variables, run.run, good, strict=True)
            if value != fine
        ]
        lines.append(
            row(f"run {number}", f"{run.outcome:<9}", ", ".join(names) or "all values as on the good machine")
        )
    return "\n".join(lines)


def verdict(state: SessionState) -> str:
    if not state.ended:
        return f"OPEN       {len(state.session.runs)} runs so far, {percent(state.confidence)}: {state.best.text}"
    kind = {0: "NOT FOUND", 1: "GUILTY", 2: "GUILTY"}[len(state.best.variables)]
    runs = len(state.session.runs)
    message = f"{kind:<{INDENT}}{state.best.text}, with {percent(state.confidence)} confidence after {runs} runs"
    if state.best.variables:
        return message
    return message + "\n" + row("next", "list other differences between the two machines, and start again")
