"""Compute the verdict on each kernel from the cases: which ran, which failed, and which kernel caused a
failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.validate.kernel_test.pool import CaseRun


@dataclass(slots=True)
class KernelVerdict:
    """The verdict on a kernel: its cases that ran, their types of weights, and the failures it caused. `left_out`
    are skipped cases, by the kernel that had ended the device too often.
    """

    kernel: str
    cases: int = 0
    types: set[str] = field(default_factory=set)
    failed: list[CaseRun] = field(default_factory=list)
    others: int = 0  # cases that failed by another kernel's fault
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        return not self.failed


def judge_kernels(ran: Sequence[CaseRun], kernels: Sequence[str]) -> dict[str, KernelVerdict]:
    """Return the verdict on each of these kernels, and on others that caused a failure."""
    blamed = blame_kernels(ran, kernels)
    by_kernel = {name: KernelVerdict(name) for name in dict.fromkeys((*kernels, *blamed.values()))}
    for number, run in enumerate(ran):
        for name in run.outcome.kernels:
            if name not in by_kernel:
                continue
            verdict = by_kernel[name]
            if run.outcome.status == "left out":
                verdict.left_out[run.outcome.blamed] += 1
                continue
            verdict.cases += 1
            verdict.types.add(run.case.dtype)
            if run.outcome.failed:
                if name == blamed[number]:
                    verdict.failed.append(run)
                else:
                    verdict.others += 1
    return by_kernel


def blame_kernels(ran: Sequence[CaseRun], among: Sequence[str] = ()) -> dict[int, str]:
    """Return the kernel at fault for each failed case, by its index. It is the kernel that a finding names;
    otherwise one that fails in a case without other kernels; otherwise the one that explains most, by number of
    failures times the share of its cases that fail. All failures that involve a kernel are attributed to it before
    the next one is determined, so a broken kernel does not incriminate the kernels used with it. If a case has
    kernels of `among`, one of these is chosen, because too few cases of the other kernels may have run.
    """
    failed = {i: item for i, item in enumerate(ran) if item.outcome.failed}
    blamed = {i: item.outcome.blamed for i, item in failed.items() if item.outcome.blamed}
    kernels = [item.outcome.kernels[0] for item in failed.values() if len(item.outcome.kernels) == 1]
    cases = Counter(name for run in ran if run.outcome.status != "left out" for name in run.outcome.kernels)
    guilty = list(dict.fromkeys((*blamed.values(), *kernels)))
    left = {
        i: _select_suspects(item, among) for i, item in failed.items() if i not in blamed and item.outcome.kernels
    }
    while left:
        if not guilty:
            count = Counter(name for suspects in left.values() for name in suspects)
            guilty = [max(count, key=lambda name: (count[name] ** 2 / cases[name], name))]
        name = guilty.pop(0)
        for i in [i for i, suspects in left.items() if name in suspects]:
            blamed[i] = name
            del left[i]
    return blamed


def _select_suspects(ran: CaseRun, among: Sequence[str]) -> tuple[str, ...]:
    kernels = ran.outcome.kernels
    return tuple(name for name in kernels if name in among) or kernels
