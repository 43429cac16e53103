"""From cases to kernels: which ran, which failed, and whose fault a failing case is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.validate.kernel_test.pool import Ran

ABOUT = 0.75  # of the largest part of failures: as often


@dataclass(slots=True)
class Verdict:
    """One kernel: its cases, the types of weights among them, and those that failed by its fault."""

    kernel: str
    cases: int = 0
    types: set[str] = field(default_factory=set)
    failed: list[Ran] = field(default_factory=list)
    others: int = 0  # cases that failed by another kernel's fault

    @property
    def passed(self) -> bool:
        return not self.failed


def verdicts(ran: Sequence[Ran], kernels: Sequence[str]) -> dict[str, Verdict]:
    """Of each of these kernels, and of others at whose fault a case failed."""
    blamed = blame(ran)
    made = {name: Verdict(name) for name in dict.fromkeys((*kernels, *blamed.values()))}
    for number, each in enumerate(ran):
        for name in each.outcome.kernels:
            if name not in made:
                continue
            verdict = made[name]
            verdict.cases += 1
            verdict.types.add(each.case.dtype)
            if each.outcome.failed:
                if name == blamed[number]:
                    verdict.failed.append(each)
                else:
                    verdict.others += 1
    return made


def blame(ran: Sequence[Ran]) -> dict[int, str]:
    """The kernel at fault in each failed case, by its index: the one that a finding names, else the likeliest. A
    kernel explains all the failures it is in before the next is looked
    for, so one broken helper does not accuse everybody that it works for."""
    blamed = {i: each.outcome.blamed for i, each in enumerate(ran) if each.outcome.failed and each.outcome.blamed}
    left = {i: each for i, each in enumerate(ran) if each.outcome.failed and i not in blamed}
    cases = Counter(name for each in ran for name in each.outcome.kernels)
    guilty = set(blamed.values())
    for i in list(left):
        known = [name for name in left[i].outcome.kernels if name in guilty]
        if known:
            blamed[i] = known[0]
            del left[i]
    while left:
        worst = _likeliest(list(left.values()), cases)
        for i in [i for i, each in left.items() if worst in each.outcome.kernels]:
            blamed[i] = worst
            del left[i]
    return blamed


def _likeliest(failures: Sequence[Ran], cases: Counter[str]) -> str:
    """The kernel of which the largest part of its cases failed. Of those that are in every failure and fail about as
    often, the last launched: who is not in every failure is not alone at fault, and the last wrote what is wrong."""
    failed = Counter(name for each in failures for name in each.outcome.kernels)
    part = {name: count / cases[name] for name, count in failed.items()}
    place = {name: at for each in failures for at, name in enumerate(each.outcome.kernels)}
    often = ABOUT * max(part.values())  # a helper of everybody is in every failure too, and in all that passes
    everywhere = [name for name in failed if failed[name] == len(failures) and part[name] >= often]
    if everywhere:
        return max(everywhere, key=lambda name: place[name])
    return max(failed, key=lambda name: (part[name], failed[name], name))
