"""Expectations of a chip: probes that fail, flake or must not run, each with its reason on the same line.

    chip gfx1201
    fail   P45/t1   MES 0x4f does not answer REMOVE_QUEUE (linux-firmware of May)
    flake  P56/t2   latency doubles while the display is on
    skip   P44      takes the machine down, see issue 12

A name without a tier means all of them. An expected failure that fails counts as a skip, with its reason; one that
passes is a failure, so the file stays true.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from zinc_rt.cli.report import Result
from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error

KINDS = ("fail", "flake", "skip")


@dataclass(frozen=True, slots=True)
class ExpectedStatus:
    kind: str
    name: str
    reason: str
    where: str  # file and line


@dataclass(frozen=True, slots=True)
class Expectations:
    chip: str = ""
    rows: tuple[ExpectedStatus, ...] = ()

    def of(self, probe: str, tier: str) -> ExpectedStatus | None:
        """Return the expectation for a probe; a row for the tier takes precedence over one for all tiers."""
        for name in (f"{probe}/{tier}", probe):
            for row in self.rows:
                if row.name == name:
                    return row
        return None

    def judge(self, result: Result, probe: str, tier: str) -> Result:
        """Return `result` adjusted by this file."""
        row = self.of(probe, tier)
        if row is None or row.kind == "skip":
            return result
        if row.kind == "fail" and result.status == "pass":
            return replace(
                result,
                status="fail",
                reason=f"passes, although {row.where} expects it to fail: {row.reason}",
                cause="the cause of the failure no longer exists, or the line is wrong",
                advice=f"remove the line from {row.where}",
            )
        if result.status == "fail":
            known = f"{'fails' if row.kind == 'fail' else 'flakes'} as {row.where} expects: {row.reason}"
            status = "skip" if row.kind == "fail" else "flake"
            return replace(result, status=status, reason=f"{known} ({result.reason})")  # type: ignore[arg-type]
        return result


def load_expectations(path: Path, known: Collection[str]) -> Expectations:
    """Read a file. `known` are the permitted names. Raises InputError naming the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = error if isinstance(error, OSError) else ValueError("not a text file")
        raise make_read_error(path, cause, next=_FORM) from error
    chip, rows = "", []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = (
            line.split("#", 1)[0].split(maxsplit=2) if line.lstrip().startswith("#") else line.split(maxsplit=2)
        )
        if not words:
            continue
        where = f"{path}:{number}"
        if words[0] == "chip" and len(words) == 2:
            chip = words[1]
            continue
        if words[0] not in KINDS:
            raise InputError(f"{where}: unknown kind {words[0]!r}, expected one of {', '.join(KINDS)}", next=_FORM)
        if len(words) < 3:
            raise InputError(f"{where}: a reason is missing", next=_FORM)
        kind, name, reason = words
        if name not in known:
            raise InputError(f"{where}: no probe {name!r}", next="zinc-rt-pm4-test --list names them")
        if name in seen:
            raise InputError(f"{where}: duplicate line for {name}")
        seen.add(name)
        rows.append(ExpectedStatus(kind, name, reason, where))
    return Expectations(chip, tuple(rows))


_FORM = "a line is `fail|flake|skip PROBE[/TIER] REASON`, or `chip gfx1201`"
