"""What a night measures of the models that are named: the runs that the milestones' speeds ask for, as data."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PEER = "llama-bench"


@dataclass(frozen=True, order=True)
class Speed:
    """One run of zinc-rt perf bench. `beside`: another program's in turns. `shows`: the criteria it is for."""

    model: Path
    tier: str
    slots: int
    beside: bool
    ctx: int
    shows: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its files."""
        tail = f"-{self.slots}slots" if self.slots > 1 else ""
        return f"bench-{self.model.stem}-{self.tier}{tail}{'-peer' if self.beside else ''}"

    def words(self) -> list[str]:
        """The words behind `zinc-rt perf bench`."""
        made = ["--model", str(self.model), "--tier", self.tier, "--ctx", str(self.ctx)]
        made += ["--slots", str(self.slots)] if self.slots > 1 else []
        if self.beside:
            made += ["--vs", f"{PEER} -m {self.model} -p 0 -n 128 -r 1 -o json"]
        return made


def identities(models: Sequence[Path]) -> dict[Path, dict[str, object]]:
    """What each file is, by its header. Raises ZincError for one that is no model."""
    from zinc_rt.model.gguf import read_gguf
    from zinc_rt.model.identity import identity

    return {model: identity(read_gguf(model)).as_dict() for model in models}


def speeds(models: Mapping[Path, Mapping[str, object]]) -> list[Speed]:
    """One run for each tier and number of slots that a criterion asks of one of these models. Criteria that no
    bench of this version records, and tiers that are not built, have none."""
    from zinc_rt.backends import registry
    from zinc_rt.perf.gate.figures import FIGURES
    from zinc_rt.perf.gate.milestones import milestones
    from zinc_rt.perf.refusals.model import other_class

    found: dict[tuple[Path, str, int, bool], list[str]] = {}
    ctx: dict[tuple[Path, str, int, bool], int] = {}
    for criterion in (each for milestone in milestones() for each in milestone.criteria):
        wanted = criterion.model
        if wanted is None or criterion.measure not in FIGURES or not registry.spec(criterion.tier).built:
            continue
        beside = criterion.measure == "against"
        if beside and shutil.which(PEER) is None:
            continue
        for model in (path for path, said in models.items() if other_class(said, wanted) is None):
            key = (model, criterion.tier, criterion.slots, beside)
            found.setdefault(key, []).append(criterion.name)
            ctx[key] = max(ctx.get(key, 0), wanted.ctx)
    return [Speed(*key, ctx[key], tuple(names)) for key, names in sorted(found.items())]
