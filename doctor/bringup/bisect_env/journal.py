"""The journal of a bisection. It survives reboots, and a truncated last line affects only that line.

JSON lines, each synced: `start` with the complete problem (later edits of VARIABLES.yaml have no effect),
`next` with the proposed run, `plan` with the boots that confirm a suspect, `record` with a run's outcome and
boot.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zinc_rt.doctor.bringup.bisect_env.model import ENOUGH
from zinc_rt.doctor.bringup.bisect_env.propose import Partial
from zinc_rt.doctor.bringup.bisect_env.variables import Assignment, Problem, parse_problem
from zinc_rt.host.errors import InputError, OutputError, UsageError

OUTCOMES = ("pass", "fail", "unclear", "could-not")
SPEED_OUTCOMES = ("measured", "wrong", "unclear", "could-not")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4): a new one every boot


@dataclass(frozen=True, slots=True)
class JournalRun:
    """One run, performed in `boot`. `refused`: the values that could not be set up together, if the outcome is
    could-not. `value`: the measured value in a speed bisection.
    """

    run: Assignment
    outcome: str
    when: str
    boot: str
    refused: Partial = ()
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The planned boots of each arm, and the suspect's text. `after`: the number of runs before the plan."""

    after: int
    suspect: str
    boots: tuple[int, ...]


@dataclass(slots=True)
class BisectSession:
    """The contents of the journal. `confidence`: the probability at which a cause is named. `proposed`: the run
    last proposed by `next`, if nothing was recorded since; `new_boot`: it needs a boot without earlier runs.
    """

    problem: Problem
    source: str
    confidence: float
    runs: list[JournalRun] = field(default_factory=list)
    plans: list[PlanRow] = field(default_factory=list)
    proposed: Assignment | None = None
    new_boot: bool = False
    torn: int = 0

    @property
    def now(self) -> Assignment:
        """Return the current state of the machine: the state of the last run that could be set up."""
        for run in reversed(self.runs):
            if run.outcome != "could-not":
                return run.run
        return self.problem.bad if self.problem.now_bad else self.problem.good

    @property
    def impossible(self) -> tuple[Partial, ...]:
        return tuple(run.refused for run in self.runs if run.outcome == "could-not")


def default_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "zinc-rt" / "bisect-env.journal"


def read_boot_id() -> str:
    """Return the id of this machine's boot. Raises UsageError."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UsageError(
            f"{BOOT_ID} cannot be read: {error.strerror}", next="record --boot NAME, with one name per boot"
        ) from None


def begin(
    path: Path, document: dict[str, Any], source: str, *, restarted: bool, confidence: float = ENOUGH
) -> None:
    """Start a bisection. Raises UsageError if one is already in progress, or OutputError."""
    if path.exists() and not restarted:
        raise UsageError(
            f"{path}: already contains a bisection",
            next=(
                "zinc-rt bisect-env status; start --again starts a new one and keeps the old journal in "
                "the same folder"
            ),
        )
    if path.exists():
        kept = path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        try:
            path.replace(kept)
        except OSError as error:
            raise _write_error(path, error) from error
    append(path, {"what": "start", "source": source, "document": document, "confidence": confidence})


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a line and sync it to disk. Raises OutputError."""
    row = {**row, "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            line = b"\n" + json.dumps(row).encode() + b"\n"
            if os.write(fd, line) != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(fd)
        finally:
            os.close(fd)
        if new:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except (OSError, TypeError) as error:
        raise _write_error(path, error) from error


def read(path: Path) -> BisectSession:
    """Read the bisection in progress. Raises UsageError if no bisection was started, InputError for a file that is
    not a journal of one.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        raise UsageError(
            f"{path}: contains no bisection", next="zinc-rt bisect-env start VARIABLES.yaml"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: the journal cannot be read: {error.strerror}") from error
    rows, torn = [], 0
    for line in filter(str.strip, lines):
        try:
            row = json.loads(line)
        except ValueError:
            torn += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
    if not rows or rows[0].get("what") != "start":
        raise InputError(
            f"{path}: not the journal of a bisection, or its first line is missing",
            next="zinc-rt bisect-env start --again VARIABLES.yaml, then record --with the known results",
        )
    problem, source = parse_problem(rows[0].get("document"), str(path)), str(rows[0].get("source", ""))
    session = BisectSession(problem, source, float(rows[0].get("confidence", ENOUGH)), torn=torn)
    for number, row in enumerate(rows[1:], 2):
        try:
            _add_row(session, row)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"{path}: record {number}: {error!r}", next="the line may have been edited by hand"
            ) from None
    return session


def _add_row(session: BisectSession, row: dict[str, Any]) -> None:
    if row["what"] == "plan":
        session.plans.append(PlanRow(len(session.runs), str(row["suspect"]), tuple(map(int, row["boots"]))))
        session.proposed = None
        return
    run = tuple(variable.values.index(row["run"][variable.name]) for variable in session.problem.variables)
    if row["what"] == "next":
        session.proposed, session.new_boot = run, bool(row.get("new_boot"))
        return
    outcomes = SPEED_OUTCOMES if session.problem.measure else OUTCOMES
    if row["what"] != "record" or row["outcome"] not in outcomes:
        raise ValueError(f"{row['what']} {row.get('outcome', '')}")
    refused: Partial = ()
    if row["outcome"] == "could-not":
        places = [session.problem.index(name) for name in row["refused"]]
        refused = tuple((at, run[at]) for at in places)
    boot = str(row.get("boot", f"run {len(session.runs) + 1}"))  # absent before this build recorded it
    value = float(row["value"]) if row["outcome"] in ("measured", "wrong") else 0.0
    session.runs.append(JournalRun(run, row["outcome"], str(row.get("when", "")), boot, refused, value))
    session.proposed = None


def _write_error(path: Path, error: Exception) -> OutputError:
    return OutputError(
        f"{path}: the journal cannot be written: {getattr(error, 'strerror', None) or error}",
        next="--journal FILE on a disk that survives a reboot",
    )
