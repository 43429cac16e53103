"""Bisect kernel, firmware and settings to find a failure's cause.

A variable is a kernel, a firmware version, a parameter or a BIOS setting; two together can be the cause. Each run
sets some variables to their bad values and runs the test. The test may be flaky: results are probabilities. The
proposed run has the highest expected information per minute, reboots included.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, begin, finish, output_stream
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import CheckFailed, UsageError
from zinc_rt.host.terminal import Table

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession
    from zinc_rt.doctor.bringup.bisect_env.propose import Proposal
    from zinc_rt.doctor.bringup.bisect_env.variables import Assignment
    from zinc_rt.doctor.bringup.bisect_env.wording import SessionState

EXAMPLE = """\
schema: zinc-rt-bisect-env/1
test: zinc-rt pm4-test -k P20        # fails on the bad machine and passes on the good one
test_minutes: 5                      # duration of one test, including the tester's work; a reboot adds 4
# flaky: {bad_passes: 0.1, good_fails: 0.0}   # omit if unknown: it is estimated from the runs
variables:
  kernel:                            # ordered values between good and bad: the first bad one is found too
    good: "6.12.57"
    bad: "7.0.4"
    values: ["6.12.57", "6.18.36", "7.0.4"]
    kind: kernel
    set: sudo grub-reboot 'Advanced options for Ubuntu>Ubuntu, with Linux {value}' && sudo reboot
    seen_in: /proc/version
  linux-firmware: {good: "20250613", bad: "20251111", kind: firmware, suspect: 2}
  mesa: {good: "25.0.7", bad: "25.2.1", kind: package}
  sched_policy: {good: "0", bad: "2", kind: parameter}
  iommu: {good: iommu=pt, bad: iommu=on, kind: cmdline}
  resizable BAR: {good: "on", bad: "off", kind: bios}
  runtime power: {good: "on", bad: auto, kind: power,
    set: "echo {value} | sudo tee /sys/bus/pci/devices/0000:03:00.0/power/control"}
"""
EPILOG = """\
  start VARIABLES.yaml          start; the file lists the differences (example prints one)
  next                          print what to set and test; unchanged until a result is recorded
  record pass|fail|unclear      record the test result; record --could-not: the combination cannot be set up
  status                        list all runs and the most likely causes
  example                       print a VARIABLES.yaml template

examples:
  zinc-rt bisect-env example > variables.yaml
  zinc-rt bisect-env start variables.yaml
  zinc-rt bisect-env next
  zinc-rt bisect-env record fail
  zinc-rt bisect-env record pass --with kernel=6.18.36        the actual value, if it differs from the proposal
  zinc-rt bisect-env record --could-not --because kernel,mesa    these two cannot be combined
  zinc-rt bisect-env --simulate                               number of runs and success rate on synthetic faults

Exit code: 0 done, or the cause is found; 1 --simulate exceeded its limits; 2 wrong usage or input.
"""
ACTIONS = ("start", "next", "record", "status", "example")


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    parser.add_argument("action", nargs="?", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "what", nargs="?", metavar="WHAT", help="start: VARIABLES.yaml; record: pass, fail or unclear"
    )
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="journal file of the bisection, synced to disk"
    )
    add_json(parser)
    parser.add_argument("--again", action="store_true", help="start again although a bisection is in progress")
    parser.add_argument(
        "--with",
        dest="with_",
        default="",
        metavar="NAME=VALUE,...",
        help="record: values that differ from the proposal",
    )
    parser.add_argument("--could-not", action="store_true", help="record: this combination cannot be set up")
    parser.add_argument(
        "--because", default="", metavar="NAME,...", help="variables that cannot be combined (default: all)"
    )
    parser.add_argument(
        "--unchecked", action="store_true", help="record although seen_in shows that a value is not set"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="bisect synthetic faults; report runs needed and success rate"
    )
    parser.add_argument(
        "--cases", type=int, default=1000, metavar="N", help="number of faults for --simulate (default 1000)"
    )
    parser.add_argument("--seed", type=int, default=11, metavar="N", help="seed for --simulate (default 11)")
    return parser


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    _check_words(arguments)
    if arguments.action == "example":
        print(EXAMPLE, end="")
        return 0
    check_writable(report=arguments.json)
    if arguments.simulate:
        return _simulate(arguments)
    bodies = {"start": _start, "next": _next, "record": _record, "status": _status}
    return bodies[arguments.action](arguments)


def _check_words(arguments: argparse.Namespace) -> None:
    """Check the words of an action. Raises UsageError for words that cannot be combined."""
    action = arguments.action
    if arguments.simulate == (action is not None):
        raise UsageError(
            "expected one of: " + ", ".join((*ACTIONS, "--simulate")), next="zinc-rt bisect-env --help"
        )
    if arguments.cases < 1:
        raise UsageError(f"--cases {arguments.cases}: expected 1 or more")
    if action == "start" and not arguments.what:
        raise UsageError("start needs VARIABLES.yaml", next="zinc-rt bisect-env example > variables.yaml")
    wants = ("pass", "fail", "unclear")
    if action == "record" and (arguments.what in wants) == arguments.could_not:
        raise UsageError("record expects pass, fail or unclear, or --could-not alone")
    if action not in ("start", "record") and arguments.what:
        raise UsageError(f"{action or '--simulate'} takes no {arguments.what!r}")
    if action == "record" and arguments.what and arguments.what not in wants:
        raise UsageError(f"record {arguments.what!r}: expected pass, fail or unclear")
    for flag, only in (("could_not", "record"), ("because", "record"), ("with_", "record"), ("again", "start")):
        if getattr(arguments, flag) and action != only:
            raise UsageError(f"--{flag.strip('_').replace('_', '-')} goes with {only}")
    if arguments.because and not arguments.could_not:
        raise UsageError("--because goes with record --could-not")


# --- the actions ---


def _start(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, variables

    path = _journal(arguments)
    _, document = variables.load(Path(arguments.what))
    journal.begin(path, document, str(Path(arguments.what).resolve()), again=arguments.again)
    _show(arguments, f"journal    {path}")
    return _next(arguments)


def _next(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording

    state = _state(arguments)
    if state.ended:
        _show(arguments, wording.verdict(state))
        return _report(arguments, state)
    run, proposed = state.session.proposed, None
    if run is None:
        proposed = _propose(state)
        run = proposed.run
        journal.append(_journal(arguments), {"what": "next", "run": wording.setting(state, run)})
    _show(arguments, wording.task(state, run, proposed, _journal_words(arguments)))
    return _report(arguments, state, run=run, told=proposed)


def _record(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording

    state = _state(arguments)
    run = _recorded_run(arguments, state.session)
    row: dict[str, Any] = {"what": "record", "run": wording.setting(state, run)}
    if arguments.could_not:
        names = [name.strip() for name in arguments.because.split(",") if name.strip()]
        for name in names:
            state.session.problem.index(name)
        row |= {"outcome": "could-not", "refused": names or [v.name for v in state.session.problem.variables]}
    else:
        if not arguments.unchecked:
            _check_set(state.session, run)
        row |= {"outcome": arguments.what}
    journal.append(_journal(arguments), row)
    state = _state(arguments)
    _show(arguments, wording.suspects(state))
    if state.ended:
        _show(arguments, wording.verdict(state))
        return _report(arguments, state)
    _show(arguments, "")
    return _next(arguments)


def _status(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import wording

    state = _state(arguments)
    if state.session.torn:
        _show(arguments, wording.row("journal", f"{state.session.torn} truncated line ignored"))
    for text in (wording.history(state), wording.suspects(state), wording.verdict(state)):
        if text:
            _show(arguments, text)
    if state.session.proposed is not None and not state.ended:
        _show(arguments, wording.row("next", f"zinc-rt bisect-env next{_journal_words(arguments)}"))
    return _report(arguments, state, run=state.session.proposed)


def _simulate(arguments: argparse.Namespace) -> int:
    import numpy as np

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.bisect_env.simulate import RIGHT_LIMIT, SETTINGS, VARIABLES, simulate

    report = begin(
        Report("bisect-env", details={"variables": VARIABLES, "cases": arguments.cases, "seed": arguments.seed}),
        arguments,
    )
    rows = []
    for setting in SETTINGS:
        outcome = simulate(setting, arguments.cases, arguments.seed)
        median, right = float(np.median(outcome.runs)), float(outcome.right.mean())
        late = float(np.percentile(outcome.runs, 90))
        holds = median <= setting.median_limit and right >= RIGHT_LIMIT
        report.results.append(
            Result(
                setting.text,
                "simulation",
                "pass" if holds else "fail",
                reason="" if holds else "more runs, or more wrong results, than allowed",
                measure={
                    "median_runs": median,
                    "p90_runs": late,
                    "most_runs": int(outcome.runs.max()),
                    "right": right,
                },
                limit={"median_runs": setting.median_limit, "right": RIGHT_LIMIT},
            )
        )
        limit = f"{median:g} of {setting.median_limit}"
        rows.append([setting.text, limit, f"{late:g}", f"{right:.1%}", "pass" if holds else "FAIL"])
    headers = [f"guilty, of {VARIABLES} variables", "median runs", "nine of ten within", "right", ""]
    _show(arguments, Table(headers, rows))
    return finish(report, arguments)


# --- what they share ---


def _journal(arguments: argparse.Namespace) -> Path:
    from zinc_rt.doctor.bringup.bisect_env.journal import default_path

    path: Path = arguments.journal or default_path()
    return path


def _journal_words(arguments: argparse.Namespace) -> str:
    return f" --journal {arguments.journal}" if arguments.journal else ""


def _state(arguments: argparse.Namespace) -> SessionState:
    import numpy as np

    from zinc_rt.doctor.bringup.bisect_env import journal, model
    from zinc_rt.doctor.bringup.bisect_env.wording import SessionState

    session = journal.read(_journal(arguments))
    built = model.build(session.problem)
    posterior = built.start()
    for run in session.runs:
        if run.outcome in ("pass", "fail"):
            present = built.present(np.array([run.run])).T
            posterior = built.after(posterior, present, np.array([run.outcome == "fail"]))
    return SessionState(session, built, built.beliefs(posterior)[0], posterior)


def _propose(state: SessionState) -> Proposal:
    from zinc_rt.doctor.bringup.bisect_env.propose import propose

    session = state.session
    proposal = propose(session.problem, state.model, state.posterior, session.now, session.impossible)
    if proposal is None:
        raise CheckFailed(
            "every combination of these values was recorded as impossible to set up",
            next="--because NAME,NAME names the values that exclude each other; zinc-rt bisect-env status",
        )
    return proposal


def _recorded_run(arguments: argparse.Namespace, session: BisectSession) -> Assignment:
    """Return the proposed run, changed by the values of --with."""
    if session.proposed is None and not arguments.with_:
        raise UsageError("no run has been proposed since the last record", next="zinc-rt bisect-env next")
    run = list(session.proposed or session.now)
    for part in filter(str.strip, arguments.with_.split(",")):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise UsageError(f"--with {part.strip()!r}: expected NAME=VALUE")
        at = session.problem.index(name)
        run[at] = session.problem.value(at, value)
    return tuple(run)


def _check_set(session: BisectSession, run: Sequence[int]) -> None:
    """Check that the values are set. Raises UsageError if a file shows another value: the result of a wrong boot
    would be recorded as evidence.
    """
    for variable, value in zip(session.problem.variables, run, strict=True):
        if not variable.seen_in:
            continue
        try:
            text = Path(variable.seen_in).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(
                f"{variable.name}: {variable.seen_in} cannot be read: {error.strerror}",
                next="record with --unchecked, if you are sure of it",
            ) from error
        if variable.values[value] not in text:
            raise UsageError(
                f"{variable.name} is not {variable.values[value]}: {variable.seen_in} says {text.strip()[:80]!r}",
                next=f"record --with {variable.name}=VALUE with the value that is set, or --unchecked",
            )


def _report(
    arguments: argparse.Namespace,
    state: SessionState,
    *,
    run: Assignment | None = None,
    told: Proposal | None = None,
) -> int:
    """Write the report. The exit code is 0 whether or not the bisection has ended; --json records which."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.bisect_env import wording

    session = state.session
    details: dict[str, Any] = {"variables": session.source, "journal": str(_journal(arguments))}
    details["ended"] = state.ended
    details["torn_lines"] = session.torn
    details["now"] = wording.setting(state, session.now)
    details["runs"] = [
        {"set": wording.setting(state, each.run), "outcome": each.outcome, "when": each.when}
        for each in session.runs
    ]
    details["suspects"] = [
        {"variables": _names(session, cause.variables), "text": cause.text, "confidence": belief}
        for cause, belief in state.likeliest()
    ]
    if run is not None:
        how = {
            session.problem.variables[at].name: session.problem.variables[at].how(run[at])
            for at in wording.changes(state, run)
        }
        details["next"] = {"set": wording.setting(state, run), "change": how, "test": session.problem.test}
        if told is not None:
            details["next"] |= {"bits": round(told.bits, 4), "minutes": told.minutes}
    best = state.best
    report = begin(Report("bisect-env", details=details), arguments)
    report.results.append(Result("journal", "bisection", "pass", measure={"runs": len(session.runs)}))
    named = bool(best.variables)
    report.results.append(
        Result(
            "guilty",
            "bisection",
            "pass" if state.ended and named else "skip",
            reason="" if state.ended and named else best.text if state.ended else "more runs are needed",
            measure={"guilty": _names(session, best.variables), "text": best.text, "confidence": state.confidence},
        )
    )
    return finish(report, arguments)


def _names(session: BisectSession, places: Sequence[int]) -> list[str]:
    return [session.problem.variables[at].name for at in places]


def _show(arguments: argparse.Namespace, part: str | Table) -> None:
    terminal.show(part, out=output_stream(arguments))


main = Command("bisect-env", parser, _body)
