"""Whether a golden is still valid for this build: by its format, ordering, code and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zinc_rt.golden.format import FORMAT, Golden
from zinc_rt.host.version import code_version
from zinc_rt.validate.goldens.check import ORDERINGS, again, other_model

State = Literal["current", "recheck", "expired"]


@dataclass(frozen=True, slots=True)
class Validity:
    """A golden's state: `current` holds, `recheck` may not (zinc-rt golden check says), `expired` cannot. `next`
    mends it."""

    state: State
    why: str = ""
    next: str = ""


def validity(golden: Golden, model_digest: str = "") -> Validity:
    """Whether this golden is still valid. `model_digest`: of the model beside it, where there is one.

    Another engine's values do not depend on our arithmetic: they expire with the format or their model alone.
    """
    recorded = str(golden.meta.get("model_digest") or "")
    if recorded and model_digest and recorded != model_digest:
        return Validity(
            "expired", f"its model was {recorded[:12]}, the one beside it is another", other_model(golden)
        )
    if golden.ordering and golden.ordering not in ORDERINGS:
        return Validity("expired", f"made in {golden.ordering}, which this build does not compute", again(golden))
    if golden.ordering and golden.meta.get("code") != code_version():
        check = f"zinc-rt golden check {golden.path}"
        return Validity("recheck", "the arithmetic or the model code has changed since", check)
    return Validity("current", f"format {golden.meta.get('format', FORMAT)}")
