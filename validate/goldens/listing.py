"""List the goldens of a folder, one row per file."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from zinc_rt.golden.format import FORMAT, Golden, read_arrays, read_golden
from zinc_rt.host.errors import InputError, error_first_line
from zinc_rt.host.version import digest_code
from zinc_rt.model.gguf import digest_model
from zinc_rt.validate.goldens.check import ORDERINGS, advise_other_model, make_recreate_command, open_model

State = Literal["current", "recheck", "expired"]


@dataclass(frozen=True, slots=True)
class Validity:
    """The state of a golden: `current` is valid, `recheck` may be outdated (run zinc-rt golden check), `expired`
    is invalid. `next` is the command that repairs it.
    """

    state: State
    why: str = ""
    next: str = ""


def check_validity(golden: Golden, model_digest: str = "") -> Validity:
    """Return whether this golden is still valid. `model_digest` is that of the model in the same folder, if any.
    Values of another engine do not depend on our arithmetic; they expire only with the format or their model.
    """
    recorded = str(golden.meta.get("model_digest") or "")
    if recorded and model_digest and recorded != model_digest:
        return Validity(
            "expired",
            f"its model was {recorded[:12]}, the one in the same folder is another",
            advise_other_model(golden),
        )
    if golden.ordering and golden.ordering not in ORDERINGS:
        return Validity(
            "expired",
            f"made in {golden.ordering}, which this build does not compute",
            make_recreate_command(golden),
        )
    if golden.ordering and golden.meta.get("code") != digest_code():
        check = f"zinc-rt golden check {golden.path}"
        return Validity("recheck", "the arithmetic or the model code has changed since", check)
    return Validity("current", f"format {golden.meta.get('format', FORMAT)}")


HEADERS = ("golden", "architecture", "source", "state", "arrays", "tokens", "size", "model sha256", "")


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One golden of a folder. `problem` is empty for a valid golden file, otherwise the reason why it is not
    one.
    """

    path: str
    architecture: str = ""
    source: str = ""
    arrays: tuple[str, ...] = ()
    prompt_tokens: int = 0
    greedy_tokens: int = 0
    size_bytes: int = 0
    sha256: str = ""
    model_digest: str = ""
    problem: str = ""
    state: str = ""  # zinc_rt.validate.goldens.listing
    why: str = ""
    next: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def format_cells(self) -> list[str]:
        tokens = f"{self.prompt_tokens} + {self.greedy_tokens}" if self.prompt_tokens else ""
        return [
            Path(self.path).stem,
            self.architecture,
            self.source,
            self.state,
            abbreviate_names(self.arrays),
            tokens,
            f"{self.size_bytes / 1024:.0f} KiB",
            self.model_digest[:12],
            self.problem or ("" if self.state == "current" else self.why),
        ]


def read_golden_row(path: Path) -> GoldenRow:
    """Return the row of a file. Never raises because of the file's contents."""
    raw = path.read_bytes()
    size, sha = len(raw), hashlib.sha256(raw).hexdigest()
    try:
        golden = read_golden(path)
        names = tuple(sorted(set(read_arrays(path)) - {"meta"}))
    except InputError as error:
        problem = error_first_line(error).removeprefix(f"{path}: ")
        return GoldenRow(str(path), size_bytes=size, sha256=sha, problem=problem)
    try:
        beside = digest_model(open_model(golden, None))
    except InputError:
        beside = ""
    kept = check_validity(golden, beside)
    return GoldenRow(
        path=str(path),
        architecture=str(golden.meta.get("arch", "")),
        source=golden.source,
        arrays=names,
        prompt_tokens=len(golden.ids),
        greedy_tokens=0 if golden.greedy_tokens is None else len(golden.greedy_tokens),
        size_bytes=size,
        sha256=sha,
        model_digest=str(golden.meta.get("model_digest", "")) or beside,
        state=kept.state,
        why=kept.why,
        next=kept.next,
    )


def abbreviate_names(names: tuple[str, ...]) -> str:
    """Return the stems of the value arrays: `ids, logits, l_out, ffn_moe_topk-*`."""
    stems = dict.fromkeys(f"{n.rpartition('-')[0]}-*" if n.rpartition("-")[2].isdigit() else n for n in names)
    main = [stem for stem in stems if not stem.endswith(("_deq", "_exactgelu")) and not stem.startswith("greedy_")]
    variants = sorted({suffix for stem in stems for suffix in ("_deq", "_exactgelu") if stem.endswith(suffix)})
    return ", ".join([*main, *(f"*{variant}" for variant in variants)])
