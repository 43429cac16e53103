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
from zinc_rt.cli.output import add_json, finish_report, output_stream, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import CheckFailed, UsageError
from zinc_rt.host.terminal import Table

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Status
    from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession
    from zinc_rt.doctor.bringup.bisect_env.propose import Proposal
    from zinc_rt.doctor.bringup.bisect_env.speed import SpeedState
    from zinc_rt.doctor.bringup.bisect_env.state import Confirmation, SessionState
    from zinc_rt.doctor.bringup.bisect_env.variables import Assignment

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
SPEED_EXAMPLE = """\
schema: zinc-rt-bisect-env/1
test: zinc-rt run --model model.gguf --prompt-file prompt.txt --json run.json
test_minutes: 2
measure:
  unit: tokens/s
  better: higher                     # lower for a time
  noise: 0.03                        # standard deviation of a run, as a share of its speed
  check: the answer equals answer.txt      # a run with wrong output does not count as fast or slow
variables:                           # ordered versions from the fast one to the slow one
  mesa:
    good: "25.0.7"
    bad: "25.3.0"
    values: ["25.0.7", "25.1.0", "25.1.4", "25.2.0", "25.2.1", "25.3.0"]
    kind: package
  kernel: {good: "6.12.57", bad: "6.18.36", values: ["6.12.57", "6.16.12", "6.18.36"], kind: kernel,
    seen_in: /proc/version}
"""
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
        "--output", choices=("right", "wrong"), help="record of a speed: whether the run's output was right"
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
        help="start, --simulate: probability at which a cause is named (default 97)",
    )
    parser.add_argument(
        "--simulate",
        nargs="?",
        const="faults",
        choices=("faults", "speed"),
        help="bisect synthetic faults, or histories of speed; report runs needed and success rate",
    )
    parser.add_argument(
        "--cases", type=int, default=200, metavar="N", help="number of cases per row for --simulate (default 200)"
    )
    parser.add_argument("--seed", type=int, default=11, metavar="N", help="seed for --simulate (default 11)")
    return parser


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    _check_words(arguments)
    if arguments.action == "example":
        print(SPEED_EXAMPLE if arguments.what else EXAMPLE, end="")
        return 0
    check_writable(report=arguments.json)
    if arguments.simulate:
        return _simulate(arguments)
    bodies = {"start": _start, "next": _next, "record": _record, "status": _status}
    return bodies[arguments.action](arguments)


def _check_words(arguments: argparse.Namespace) -> None:
    """Checks the words of an action. Raises UsageError for words that do not go together."""
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
            raise UsageError(f"--{flag.strip('_').replace('_', '-')} goes with {only}")
    if arguments.because and not arguments.could_not:
        raise UsageError("--because goes with record --could-not")


# --- the actions ---


def _start(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, variables

    path = _journal(arguments)
    _, document = variables.load(Path(arguments.what))
    source, confidence = str(Path(arguments.what).resolve()), arguments.confidence / 100
    journal.begin(path, document, source, again=arguments.again, confidence=confidence)
    _show(arguments, f"journal    {path}")
    return _next(arguments)


def _next(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording

    session = journal.read(_journal(arguments))
    if session.problem.measure:
        return _speed_next(arguments, session)
    state = _planned(arguments, session)
    session = state.session
    if state.ended:
        _show(arguments, wording.verdict(state))
        return _report(arguments, state)
    run, told = session.proposed, None
    if run is None:
        told = _propose(arguments, state)
        run, session.new_boot = told.run, told.new_boot
        row = {"what": "next", "run": wording.setting(session, run), "new_boot": told.new_boot}
        journal.append(_journal(arguments), row)
    reboot = session.new_boot and _boot(arguments) in {each.boot for each in session.runs}
    words = _journal_words(arguments)
    _show(arguments, wording.task(session, run, told, words, reboot=reboot, outcome="pass|fail|unclear"))
    return _report(arguments, state, run=run, told=told)


def _planned(arguments: argparse.Namespace, session: BisectSession) -> SessionState:
    """Compute the state. If a suspect is due, state the plan of its confirmation before its first boot."""
    from zinc_rt.doctor.bringup.bisect_env import journal, wording
    from zinc_rt.doctor.bringup.bisect_env.propose import REBOOT_MINUTES
    from zinc_rt.doctor.bringup.bisect_env.state import compute

    state = compute(session)
    due = state.next_plan()
    if due is None:
        return state
    cause, plan = due
    boots = sum(plan.boots) - (sum(state.confirmation.spent) if state.confirmation else 0)
    _show(arguments, wording.plan(cause, plan, boots * (session.problem.test_minutes + REBOOT_MINUTES)))
    journal.append(_journal(arguments), {"what": "plan", "suspect": cause.text, "boots": list(plan.boots)})
    return compute(journal.read(_journal(arguments)))


def _record(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording
    from zinc_rt.doctor.bringup.bisect_env.state import compute

    session = journal.read(_journal(arguments))
    run = _what_ran(arguments, session)
    row: dict[str, Any] = {"what": "record", "run": wording.setting(session, run), "boot": _boot(arguments)}
    if arguments.could_not:
        names = [name.strip() for name in arguments.because.split(",") if name.strip()]
        for name in names:
            session.problem.index(name)
        row |= {"outcome": "could-not", "refused": names or [v.name for v in session.problem.variables]}
    else:
        row |= _outcome(arguments, session)
        if not arguments.unchecked:
            _check_set(session, run)
    journal.append(_journal(arguments), row)
    session = journal.read(_journal(arguments))
    if session.problem.measure:
        return _speed_next(arguments, session)
    state = compute(session)
    if not state.ended and state.confirmation is None:
        _show(arguments, wording.suspects(state))
    if not state.ended:
        _show(arguments, "")
    return _next(arguments)


def _outcome(arguments: argparse.Namespace, session: BisectSession) -> dict[str, Any]:
    """Return the recorded outcome: pass, fail or unclear; of a speed bisection a number and its output."""
    said, measure = arguments.what or "", session.problem.measure
    if measure is None:
        if arguments.output or said not in PASS_FAIL:
            raise UsageError(RECORD_WORDS)
        return {"outcome": said}
    if said == "unclear":
        return {"outcome": said}
    if arguments.output is None:
        raise UsageError(
            "record of a speed needs --output right or --output wrong: a wrong result is neither fast nor slow",
            next=f"check the output: {measure.check}" if measure.check else "",
        )
    number = said.removesuffix(measure.unit).strip()
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"record {said!r}: expected a positive number of {measure.unit}, or unclear")
    outcome = "measured" if arguments.output == "right" else "wrong"
    return {"outcome": outcome, "value": value, "unit": measure.unit}


def _status(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, wording
    from zinc_rt.doctor.bringup.bisect_env.state import compute

    session = journal.read(_journal(arguments))
    if session.torn:
        _show(arguments, wording.row("journal", f"{session.torn} truncated line ignored"))
    if session.runs:
        _show(arguments, wording.history(session))
    if session.problem.measure:
        return _speed_status(arguments, session)
    state = compute(session)
    for text in (wording.suspects(state), wording.verdict(state)):
        _show(arguments, text)
    if session.proposed is not None and not state.ended:
        _show(arguments, wording.row("next", f"zinc-rt bisect-env next{_journal_words(arguments)}"))
    return _report(arguments, state, run=session.proposed)


# --- the speed of versions ---


def _speed_next(arguments: argparse.Namespace, session: BisectSession) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, speed, wording

    state = speed.compute(speed.SpeedModel(session.problem), session.runs, session.confidence)
    if state.verdict:
        _show(arguments, wording.speed_verdict(session, state))
        return _speed_report(arguments, session, state)
    run, told = session.proposed, None
    if run is None:
        told = speed.propose(state, session.now, session.impossible)
        if told is None:
            raise CheckFailed(
                "no combination is left: each was impossible to set up, or its output was wrong",
                next="zinc-rt bisect-env status; bisect the wrong output first, without measure in the file",
            )
        run = told.run
        row = {"what": "next", "run": wording.setting(session, run), "new_boot": False}
        journal.append(_journal(arguments), row)
    outcome = "NUMBER --output right|wrong"
    words = _journal_words(arguments)
    _show(arguments, wording.speed_progress(session, state))
    _show(arguments, wording.task(session, run, told, words, reboot=False, outcome=outcome))
    return _speed_report(arguments, session, state, run=run)


def _speed_status(arguments: argparse.Namespace, session: BisectSession) -> int:
    from zinc_rt.doctor.bringup.bisect_env import speed, wording

    state = speed.compute(speed.SpeedModel(session.problem), session.runs, session.confidence)
    for text in (wording.speed_progress(session, state), wording.speed_verdict(session, state)):
        _show(arguments, text)
    return _speed_report(arguments, session, state, run=session.proposed)


def _speed_report(
    arguments: argparse.Namespace, session: BisectSession, state: SpeedState, *, run: Assignment | None = None
) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.bisect_env import speed, wording

    measure = session.problem.measure
    assert measure is not None
    details: dict[str, Any] = {"variables": session.source, "journal": str(_journal(arguments))}
    details |= {"ended": bool(state.verdict), "verdict": state.verdict, "complete": state.complete}
    details |= {"torn_lines": session.torn, "unit": measure.unit, "most_runs": speed.most_runs(session.problem)}
    details["runs"] = wording.runs(session)
    details["wrong_output"] = [wording.setting(session, each) for each in speed.wrong_values(session.runs)]
    steps = [{**wording.step_row(session, step), "confidence": chance} for step, chance in state.named()]
    details["likeliest"] = [
        {"steps": [wording.step_row(session, step) for step in steps], "probability": chance}
        for steps, chance in state.likeliest()
    ]
    if run is not None:
        details["next"] = wording.next_run(session, run)
    report = start_report(Report("bisect-env", details=details), arguments)
    report.results.append(Result("journal", "bisection", "pass", measure={"runs": len(session.runs)}))
    done = state.complete and bool(state.verdict)
    report.results.append(
        Result(
            "steps",
            "bisection",
            "pass" if done else "skip",
            reason="" if done else state.verdict or "more runs are needed",
            measure={"steps": steps},
        )
    )
    return finish_report(report, arguments)


# --- simulation ---


def _simulate(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.doctor.bringup.bisect_env.simulate import VARIABLES

    details = {"variables": VARIABLES, "cases": arguments.cases, "seed": arguments.seed}
    details["confidence"] = arguments.confidence / 100
    report = start_report(Report("bisect-env", details=details), arguments)
    if arguments.simulate == "speed":
        _simulate_speed(arguments, report)
    else:
        _simulate_faults(arguments, report)
    return finish_report(report, arguments)


def _simulate_faults(arguments: argparse.Namespace, report: Report) -> None:
    import numpy as np

    from zinc_rt.cli.report import Result
    from zinc_rt.doctor.bringup.bisect_env.simulate import RIGHT_LIMIT, SETTINGS, VARIABLES, WRONG_LIMIT, simulate

    rows = []
    for setting in SETTINGS:
        found = simulate(setting, arguments.cases, arguments.seed, arguments.confidence / 100)
        median, late = float(np.median(found.runs)), float(np.percentile(found.runs, 90))
        right, wrong = float(found.right.mean()), float(found.wrong.mean())
        kept = bool((found.spent <= found.planned).all())
        holds = (right >= RIGHT_LIMIT if setting.explained else wrong <= WRONG_LIMIT) and kept
        holds &= setting.median_limit is None or median <= setting.median_limit
        boots = float(np.median(found.boots)), float(np.percentile(found.boots, 90))
        planned, spent = float(np.median(found.planned)), float(np.median(found.spent))
        report.results.append(
            Result(
                setting.text + ("" if setting.known else ", rates not told"),
                "simulation",
                "pass" if holds else "fail",
                reason="" if holds else "more runs, or more wrong results, than allowed",
                measure={
                    "median_runs": median,
                    "p90_runs": late,
                    "median_planned_boots": planned,
                    "median_spent_boots": spent,
                    "median_boots": boots[0],
                    "p90_boots": boots[1],
                    "right": right,
                    "wrong": wrong,
                    "not_found": float(found.not_found.mean()),
                    "plans_kept": kept,
                },
                limit={"median_runs": setting.median_limit, "right": RIGHT_LIMIT}
                if setting.explained
                else {"wrong": WRONG_LIMIT},
            )
        )
        limit = f"{median:g} of {setting.median_limit}" if setting.median_limit else f"{median:g}"
        told = "told" if setting.known else "not told"
        words = [setting.text, told, limit, f"{spent:g} of {planned:g}", f"{boots[0]:g}, {boots[1]:g}"]
        shares = [f"{each:.1%}" for each in (right, wrong, found.not_found.mean())]
        rows.append([*words, *shares, "pass" if holds else "FAIL"])
    headers = [
        f"cause, of {VARIABLES} variables",
        "rates",
        "runs to suspect",
        "boots to confirm",
        "all boots, p90",
    ]
    _show(arguments, Table([*headers, "right", "wrong", "not found", ""], rows))


def _simulate_speed(arguments: argparse.Namespace, report: Report) -> None:
    import numpy as np

    from zinc_rt.cli.report import Result
    from zinc_rt.doctor.bringup.bisect_env.speed import RIGHT_LIMIT, SPEED_SETTINGS, simulate

    rows = []
    for setting in SPEED_SETTINGS:
        found = simulate(setting, arguments.cases, arguments.seed, arguments.confidence / 100)
        median, late, most = float(np.median(found.runs)), float(np.percentile(found.runs, 90)), found.runs.max()
        right, sure = float(found.right.mean()), float(found.sure.mean())
        wrong = float((found.sure & ~found.right).mean())
        holds = right >= RIGHT_LIMIT and most <= found.most
        status: Status = "pass" if holds else "fail" if setting.judged else "skip"
        report.results.append(
            Result(
                setting.text,
                "simulation",
                status,
                reason="" if holds else "fewer right results than asked" if setting.judged else "no limit is set",
                measure={
                    "median_runs": median,
                    "p90_runs": late,
                    "most_runs": int(most),
                    "right": right,
                    "sure": sure,
                    "sure_and_wrong": wrong,
                },
                limit={"most_runs": found.most, "right": RIGHT_LIMIT} if setting.judged else {},
            )
        )
        words = [setting.text, f"{median:g}", f"{late:g}", f"{most} of {found.most}"]
        rows.append(
            [
                *words,
                f"{right:.1%}",
                f"{sure:.1%}",
                f"{wrong:.1%}",
                {"fail": "FAIL", "skip": ""}.get(status, status),
            ]
        )
    headers = ["history", "median runs", "nine of ten within", "most", "right", "sure", "sure and wrong", ""]
    _show(arguments, Table(headers, rows))


# --- what they share ---


def _journal(arguments: argparse.Namespace) -> Path:
    from zinc_rt.doctor.bringup.bisect_env.journal import default_path

    path: Path = arguments.journal or default_path()
    return path


def _journal_words(arguments: argparse.Namespace) -> str:
    return f" --journal {arguments.journal}" if arguments.journal else ""


def _boot(arguments: argparse.Namespace) -> str:
    from zinc_rt.doctor.bringup.bisect_env.journal import boot_id

    return arguments.boot or boot_id()


def _propose(arguments: argparse.Namespace, state: SessionState) -> Proposal:
    """Return the next run: of the arm whose turn it is, or of the search."""
    import numpy as np

    from zinc_rt.doctor.bringup.bisect_env.propose import Proposal, minutes, possible, propose
    from zinc_rt.doctor.bringup.bisect_env.state import boot_chances

    session, boot = state.session, _boot(arguments)
    arm = state.arm()
    if arm is not None:
        run = np.array([arm.run])
        if not len(possible(run, session.impossible)):
            raise CheckFailed(
                f"the suspect cannot be confirmed: a run {arm.text} was recorded as impossible to set up",
                next="record --with NAME=VALUE of the values that can be set, or zinc-rt bisect-env status",
            )
        used = any(each.boot == boot for each in session.runs)
        cost = minutes(session.problem, run, session.now, reboot=used)
        return Proposal(arm.run, 0.0, float(cost[0]))
    earlier = [
        (state.model.present(np.array([each.run]))[:, 0], each.outcome == "fail")
        for each in session.runs
        if each.boot == boot and each.outcome in ("pass", "fail")
    ]
    in_boot = boot_chances(state.model, earlier)
    found = propose(session.problem, state.model, state.posterior, session.now, session.impossible, in_boot)
    if found is None:
        raise CheckFailed(
            "every combination of these values was recorded as impossible to set up",
            next="--because NAME,NAME names the values that exclude each other; zinc-rt bisect-env status",
        )
    return found


def _what_ran(arguments: argparse.Namespace, session: BisectSession) -> Assignment:
    """The run as proposed, but for what --with says."""
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
    """Checks what is set. Raises UsageError where a file says that a value is not set: a wrong boot would be taken
    for evidence."""
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
    """0 whether it has ended or not: --json says which."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.bisect_env import wording

    session, found = state.session, state.confirmation
    details: dict[str, Any] = {"variables": session.source, "journal": str(_journal(arguments))}
    details["ended"], details["verdict"] = state.ended, state.verdict
    details["torn_lines"] = session.torn
    details["now"] = wording.setting(session, session.now)
    details["runs"] = wording.runs(session)
    details["suspects"] = [
        {"variables": _names(session, cause.variables), "text": cause.text, "confidence": belief}
        for cause, belief in state.likeliest()
    ]
    details["confirmation"] = _arms(state, found) if found else None
    details["refuted"] = [
        {**_arms(state, each), "finding": wording.refutation(state, each)} for each in state.refuted
    ]
    if run is not None:
        details["next"] = wording.next_run(session, run)
        if told is not None:
            details["next"] |= {"bits": round(told.bits, 4), "minutes": told.minutes, "new_boot": told.new_boot}
    best, guilty = state.best, state.verdict == "guilty"
    report = start_report(Report("bisect-env", details=details), arguments)
    report.results.append(Result("journal", "bisection", "pass", measure={"runs": len(session.runs)}))
    names = _names(session, best.variables if guilty or not state.ended else ())
    text = state.verdict.replace("-", " ") if state.verdict == "not-explained" else best.text
    report.results.append(
        Result(
            "guilty",
            "bisection",
            "pass" if guilty else "skip",
            reason="" if guilty else text if state.ended else "more runs are needed",
            measure={"guilty": names, "text": text, "confidence": state.confidence},
        )
    )
    return finish_report(report, arguments)


def _arms(state: SessionState, found: Confirmation) -> dict[str, Any]:
    from zinc_rt.doctor.bringup.bisect_env.wording import setting

    arms = zip(found.plan.arms, found.plan.boots, found.boots, strict=True)
    return {
        "suspect": state.model.causes[found.suspect].text,
        "arms": [
            {
                "set": setting(state.session, arm.run),
                "text": arm.text,
                "planned_boots": planned,
                "boots": [{"runs": runs, "failed": failed} for runs, failed in boots.values()],
            }
            for arm, planned, boots in arms
        ],
    }


def _names(session: BisectSession, places: Sequence[int]) -> list[str]:
    return [session.problem.variables[at].name for at in places]


def _show(arguments: argparse.Namespace, part: str | Table) -> None:
    terminal.show(part, out=output_stream(arguments))


main = Command("bisect-env", parser, _body)
