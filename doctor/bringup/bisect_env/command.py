"""Bisect kernel, firmware and settings: find what fails or became slow.

A variable is a kernel, a firmware version, a parameter or a BIOS setting; two together can be the cause. Each run
sets some variables to their bad values and runs the test. The test may be flaky: results are probabilities. The
proposed run has the highest expected information per minute, reboots included. A suspect is confirmed over several
boots, with only it bad and with everything but it bad, before it is named; the boots are stated first.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json
from zinc_rt.doctor.bringup.bisect_env import speed_command
from zinc_rt.doctor.bringup.bisect_env.examples import EXAMPLE, SPEED_EXAMPLE
from zinc_rt.doctor.bringup.bisect_env.fault_report import write_fault_report
from zinc_rt.doctor.bringup.bisect_env.next_run import propose_run
from zinc_rt.doctor.bringup.bisect_env.output import find_boot_name, find_journal, format_journal_option, show
from zinc_rt.doctor.bringup.bisect_env.simulation_command import simulate_bisections
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession
    from zinc_rt.doctor.bringup.bisect_env.state import SessionState
    from zinc_rt.doctor.bringup.bisect_env.variables import Assignment

EPILOG = """\
  start VARIABLES.yaml          start; the file lists the differences (example prints one)
  next                          print what to set and test; unchanged until a result is recorded
  record pass|fail|unclear      record the test result; record --could-not: the combination cannot be set up
  record NUMBER --output right|wrong    the same for a speed (the file has measure)
  status                        list all runs and the most likely causes
  example                       print a VARIABLES.yaml template; example speed: one that measures a speed

examples:
  zinc-rt bisect-env example > variables.yaml
  zinc-rt bisect-env start variables.yaml
  zinc-rt bisect-env next
  zinc-rt bisect-env record fail
  zinc-rt bisect-env record pass --with kernel=6.18.36        the actual value, if it differs from the proposal
  zinc-rt bisect-env record --could-not --because kernel,mesa    these two cannot be combined
  zinc-rt bisect-env record 41.3 --output right               a speed in the file's unit; the output was right
  zinc-rt bisect-env --simulate                               number of runs and success rate on synthetic faults
  zinc-rt bisect-env --simulate speed                         the same on synthetic histories of speed

Exit code: 0 done, or the cause is found; 1 --simulate exceeded its limits; 2 wrong usage or input.
"""
PASS_FAIL = ("pass", "fail", "unclear")
RECORD_WORDS = "record expects pass, fail or unclear (for a speed a number), or --could-not alone"
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
    parser.add_argument("--again", action="store_true", help="start again even if a bisection is in progress")
    parser.add_argument(
        "--with",
        dest="with_",
        default="",
        metavar="NAME=VALUE,...",
        help="record: values that differ from the proposal",
    )
    parser.add_argument(
        "--could-not", action="store_true", help="record: mark this combination as impossible to set up"
    )
    parser.add_argument(
        "--because",
        default="",
        metavar="NAME,...",
        help="variables whose values cannot be combined (default: all)",
    )
    parser.add_argument(
        "--unchecked", action="store_true", help="record even if seen_in shows that a value is not set"
    )
    parser.add_argument(
        "--output", choices=("right", "wrong"), help="record, for a speed: whether the run's output was right"
    )
    parser.add_argument(
        "--boot",
        default="",
        metavar="NAME",
        help="name of the boot that ran the test (default: this machine's boot)",
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=97.0,
        metavar="PERCENT",
        help="start, --simulate: probability in percent required to name a cause (default 97)",
    )
    parser.add_argument(
        "--simulate",
        nargs="?",
        const="faults",
        choices=("faults", "speed"),
        help="bisect synthetic faults or speed histories; report the number of runs and the success rate",
    )
    parser.add_argument(
        "--cases", type=int, default=200, metavar="N", help="number of cases per row for --simulate (default 200)"
    )
    parser.add_argument("--seed", type=int, default=11, metavar="N", help="seed for --simulate (default 11)")
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    _check_words(arguments)
    if arguments.action == "example":
        print(SPEED_EXAMPLE if arguments.what else EXAMPLE, end="")
        return 0
    check_writable(report=arguments.json)
    if arguments.simulate:
        return simulate_bisections(arguments)
    bodies = {"start": _start_session, "next": _show_next_run, "record": _record_run, "status": _show_status}
    return bodies[arguments.action](arguments)


def _check_words(arguments: argparse.Namespace) -> None:
    """Checks the words of an action. Raises UsageError for arguments that cannot be combined."""
    action = arguments.action
    if bool(arguments.simulate) == (action is not None):
        raise UsageError(
            "expected one of: " + ", ".join((*ACTIONS, "--simulate")), next="zinc-rt bisect-env --help"
        )
    if arguments.cases < 1:
        raise UsageError(f"--cases {arguments.cases}: expected 1 or more")
    if action == "start" and not arguments.what:
        raise UsageError("start needs VARIABLES.yaml", next="zinc-rt bisect-env example > variables.yaml")
    if action == "record" and bool(arguments.what) == arguments.could_not:
        raise UsageError(RECORD_WORDS)
    if not 50 <= arguments.confidence < 100:
        raise UsageError(f"--confidence {arguments.confidence:g}: expected 50 to 99.9 percent")
    if action not in ("start", "record") and arguments.what and (action, arguments.what) != ("example", "speed"):
        raise UsageError(f"{action or '--simulate'} takes no {arguments.what!r}")
    only_record = (("could_not", "record"), ("because", "record"), ("with_", "record"), ("output", "record"))
    for flag, only in (*only_record, ("again", "start")):
        if getattr(arguments, flag) and action != only:
            raise UsageError(f"--{flag.strip('_').replace('_', '-')} can only be used with {only}")
    if arguments.because and not arguments.could_not:
        raise UsageError("--because can only be used with record --could-not")


# --- the actions ---


def _start_session(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, variables

    path = find_journal(arguments)
    _, document = variables.load_problem(Path(arguments.what))
    source, confidence = str(Path(arguments.what).resolve()), arguments.confidence / 100
    journal.begin(path, document, source, restarted=arguments.again, confidence=confidence)
    show(arguments, f"journal    {path}")
    return _show_next_run(arguments)


def _show_next_run(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording

    session = journal.read(find_journal(arguments))
    if session.problem.measure:
        return speed_command.propose_measurement(arguments, session)
    state = _plan_confirmation(arguments, session)
    session = state.session
    if state.ended:
        show(arguments, wording.describe_verdict(state))
        return write_fault_report(arguments, state)
    run, proposal = session.proposed, None
    if run is None:
        proposal = propose_run(arguments, state)
        run, session.new_boot = proposal.run, proposal.new_boot
        row = {"what": "next", "run": wording.format_setting(session, run), "new_boot": proposal.new_boot}
        journal.append(find_journal(arguments), row)
    reboot = session.new_boot and find_boot_name(arguments) in {run.boot for run in session.runs}
    words = format_journal_option(arguments)
    show(
        arguments, wording.describe_task(session, run, proposal, words, reboot=reboot, outcome="pass|fail|unclear")
    )
    return write_fault_report(arguments, state, run=run, proposal=proposal)


def _plan_confirmation(arguments: argparse.Namespace, session: BisectSession) -> SessionState:
    """Compute the state. If a suspect is due, state the plan of its confirmation before its first boot."""
    from zinc_rt.doctor.bringup.bisect_env import journal, wording
    from zinc_rt.doctor.bringup.bisect_env.propose import REBOOT_MINUTES
    from zinc_rt.doctor.bringup.bisect_env.state import compute_state

    state = compute_state(session)
    due = state.find_next_plan()
    if due is None:
        return state
    cause, plan = due
    boots = sum(plan.boots) - (sum(state.confirmation.spent) if state.confirmation else 0)
    show(arguments, wording.describe_plan(cause, plan, boots * (session.problem.test_minutes + REBOOT_MINUTES)))
    journal.append(find_journal(arguments), {"what": "plan", "suspect": cause.text, "boots": list(plan.boots)})
    return compute_state(journal.read(find_journal(arguments)))


def _record_run(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording
    from zinc_rt.doctor.bringup.bisect_env.state import compute_state

    session = journal.read(find_journal(arguments))
    run = _find_executed_run(arguments, session)
    row: dict[str, Any] = {
        "what": "record",
        "run": wording.format_setting(session, run),
        "boot": find_boot_name(arguments),
    }
    if arguments.could_not:
        names = [name.strip() for name in arguments.because.split(",") if name.strip()]
        for name in names:
            session.problem.index(name)
        row |= {"outcome": "could-not", "refused": names or [v.name for v in session.problem.variables]}
    else:
        row |= _read_outcome(arguments, session)
        if not arguments.unchecked:
            _check_set(session, run)
    journal.append(find_journal(arguments), row)
    session = journal.read(find_journal(arguments))
    if session.problem.measure:
        return speed_command.propose_measurement(arguments, session)
    state = compute_state(session)
    if not state.ended and state.confirmation is None:
        show(arguments, wording.describe_suspects(state))
    if not state.ended:
        show(arguments, "")
    return _show_next_run(arguments)


def _read_outcome(arguments: argparse.Namespace, session: BisectSession) -> dict[str, Any]:
    """Return the recorded outcome: pass, fail or unclear; of a speed bisection a number and its output."""
    output, measure = arguments.what or "", session.problem.measure
    if measure is None:
        if arguments.output or output not in PASS_FAIL:
            raise UsageError(RECORD_WORDS)
        return {"outcome": output}
    if output == "unclear":
        return {"outcome": output}
    if arguments.output is None:
        raise UsageError(
            "to record a speed, pass --output right or --output wrong: the speed of a wrong result is not "
            "evaluated",
            next=f"check the output: {measure.check}" if measure.check else "",
        )
    number = output.removesuffix(measure.unit).strip()
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"record {output!r}: expected a positive number of {measure.unit}, or unclear")
    outcome = "measured" if arguments.output == "right" else "wrong"
    return {"outcome": outcome, "value": value, "unit": measure.unit}


def _show_status(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording
    from zinc_rt.doctor.bringup.bisect_env.state import compute_state

    session = journal.read(find_journal(arguments))
    if session.torn:
        show(arguments, wording.format_row("journal", f"{session.torn} truncated line ignored"))
    if session.runs:
        show(arguments, wording.describe_history(session))
    if session.problem.measure:
        return speed_command.show_status(arguments, session)
    state = compute_state(session)
    for text in (wording.describe_suspects(state), wording.describe_verdict(state)):
        show(arguments, text)
    if session.proposed is not None and not state.ended:
        show(arguments, wording.format_row("next", f"zinc-rt bisect-env next{format_journal_option(arguments)}"))
    return write_fault_report(arguments, state, run=session.proposed)


# --- steps of the actions ---


def _find_executed_run(arguments: argparse.Namespace, session: BisectSession) -> Assignment:
    """Return the proposed run with the changes of --with."""
    if session.proposed is None and not arguments.with_:
        raise UsageError("no run has been proposed since the last record", next="zinc-rt bisect-env next")
    run = list(session.proposed or session.now)
    for part in filter(str.strip, arguments.with_.split(",")):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise UsageError(f"--with {part.strip()!r}: expected NAME=VALUE")
        index = session.problem.index(name)
        run[index] = session.problem.value(index, value)
    return tuple(run)


def _check_set(session: BisectSession, run: Sequence[int]) -> None:
    """Checks what is set. Raises UsageError if a file shows that a value is not set, because a wrong boot would
    count as evidence.
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
                f"{variable.name} is not {variable.values[value]}: {variable.seen_in} contains "
                f"{text.strip()[:80]!r}",
                next=f"record --with {variable.name}=VALUE with the value that is set, or --unchecked",
            )


main = Command("bisect-env", parser, _run_command)
