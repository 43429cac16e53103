"""All cases, by family.

A family is one file with SWEEPS. To add a family, import it and add its name here. zinc-rt kernel-test and
tests/kernels run the same cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zinc_rt.kernels.cases import Case
from zinc_rt.validate.cases import attention, elementwise, experts, norms, projections, recurrent, sampling
from zinc_rt.validate.cases.sweep import Sweep

FAMILIES: dict[str, Sequence[Sweep]] = {
    "projections": projections.SWEEPS,
    "norms": norms.SWEEPS,
    "elementwise": elementwise.SWEEPS,
    "attention": attention.SWEEPS,
    "experts": experts.SWEEPS,
    "recurrent": recurrent.SWEEPS,
    "sampling": sampling.SWEEPS,
}


def family_cases(family: str) -> Iterator[Case]:
    """Return the cases of one family without duplicates."""
    seen = set()
    for sweep in FAMILIES[family]:
        for case in sweep.cases():
            line = case.text()
            if line not in seen:
                seen.add(line)
                yield case
