"""The texts of a bisection: the next run, its progress, the verdict."""

from __future__ import annotations

from zinc_rt.doctor.bringup.bisect_env.confirm import ConfirmationPlan
from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession
from zinc_rt.doctor.bringup.bisect_env.model import Cause
from zinc_rt.doctor.bringup.bisect_env.propose import Proposal
from zinc_rt.doctor.bringup.bisect_env.speed import SpeedState, SpeedStep, count_most_runs, find_wrong_combinations
from zinc_rt.doctor.bringup.bisect_env.state import Confirmation, SessionState
from zinc_rt.doctor.bringup.bisect_env.variables import KINDS, Assignment

INDENT = 11


def format_percent(share: float) -> str:
    return f"{share:.0%}" if share < 0.99 else f"{min(share, 0.9999):.2%}"


def format_row(name: str, *words: str) -> str:
    return f"{name:<{INDENT}}" + "  ".join(words)


def format_setting(session: BisectSession, run: Assignment) -> dict[str, str]:
    return {v.name: v.values[index] for v, index in zip(session.problem.variables, run, strict=True)}


def find_changes(session: BisectSession, run: Assignment) -> list[int]:
    return [index for index, (old, new) in enumerate(zip(session.now, run, strict=True)) if old != new]


def describe_runs(session: BisectSession) -> list[dict[str, object]]:
    """Return the runs for a report."""
    return [
        {
            "set": format_setting(session, run.run),
            "outcome": run.outcome,
            "when": run.when,
            "boot": run.boot,
            **({"value": run.value} if session.problem.measure and run.outcome in ("measured", "wrong") else {}),
        }
        for run in session.runs
    ]


def describe_next_run(session: BisectSession, run: Assignment) -> dict[str, object]:
    """Return the next run for a report."""
    variables = session.problem.variables
    how = {
        variables[change].name: variables[change].describe_setting(run[change])
        for change in find_changes(session, run)
    }
    return {"set": format_setting(session, run), "change": how, "test": session.problem.test}


def describe_task(
    session: BisectSession, run: Assignment, proposal: Proposal | None, journal: str, *, reboot: bool, outcome: str
) -> str:
    """Return the values to set, the test to run and the command that records the result. `reboot`: the present
    boot has earlier runs, and this run needs a new one."""
    variables, now = session.problem.variables, session.now
    changed = find_changes(session, run)
    lines = [format_row("run", f"{len(session.runs) + 1}: {_describe_effort(session, changed, proposal, reboot)}")]
    for index in changed:
        variable = variables[index]
        lines.append(
            format_row("set", f"{variable.name}: {variable.values[now[index]]} -> {variable.values[run[index]]}")
        )
        lines.append(" " * INDENT + f"  {variable.describe_setting(run[index])}")
    stays = [f"{v.name} {v.values[run[index]]}" for index, v in enumerate(variables) if index not in changed]
    if stays:
        lines.append(format_row("leave", ", ".join(stays)))
    if reboot:
        lines.append(
            format_row("reboot", "before the test: runs of one boot are alike, so another one here tells little")
        )
    lines.append(format_row("test", session.problem.test or "the command that fails on the bad machine"))
    if session.problem.measure and session.problem.measure.check:
        lines.append(format_row("output", f"is right if: {session.problem.measure.check}"))
    lines.append(format_row("then", f"zinc-rt bisect-env record {outcome}{journal}"))
    lines.append(format_row("", f"or, if it cannot be set up: zinc-rt bisect-env record --could-not{journal}"))
    return "\n".join(lines)


def _describe_effort(session: BisectSession, changed: list[int], proposal: Proposal | None, reboot: bool) -> str:
    kinds = [KINDS[session.problem.variables[at].kind] for at in changed]
    once = max(kinds, key=lambda kind: kind.once_minutes).once if kinds else ""
    if reboot and once != "a shutdown":
        once = "a reboot"
    words = f"{len(changed)} change{'s' if len(changed) > 1 else ''}" if changed else "no change"
    words += f", {once}" if once else "" if changed else ", run it again"
    return words + _describe_expectation(proposal)


def _describe_expectation(proposal: Proposal | None) -> str:
    if proposal is None:
        return ""
    bits = f"; tells {proposal.bits:.2f} bits" if proposal.bits else ""
    return f", about {proposal.minutes:.0f} minutes{bits}"


def describe_suspects(state: SessionState) -> str:
    """Return the most likely causes."""
    lines = [
        format_row("suspects", f"{format_percent(belief):>6}  {cause.text}")
        for cause, belief in state.likeliest_causes()
    ]
    return "\n".join([lines[0], *(" " * INDENT + line[INDENT:] for line in lines[1:])])


def describe_plan(cause: Cause, planned: ConfirmationPlan, minutes: float) -> str:
    """Return the boots that a confirmation will use."""
    total = sum(planned.boots)
    lines = [
        format_row(
            "suspect", f"{cause.text}: to be confirmed, in at most {total} boots (about {minutes:.0f} minutes)"
        )
    ]
    lines += [
        format_row("", f"at most {boots} {arm.text}")
        for arm, boots in zip(planned.arms, planned.boots, strict=True)
        if boots
    ]
    return "\n".join(lines)


def describe_arms(confirmation: Confirmation) -> str:
    """Return the results of a confirmation so far, one line per arm."""
    lines = []
    for arm, planned, boots in zip(
        confirmation.plan.arms, confirmation.plan.boots, confirmation.boots, strict=True
    ):
        runs, failed = (sum(boot[at] for boot in boots.values()) for at in (0, 1))
        if planned or runs:
            lines.append(
                format_row("", f"{failed} of {runs} runs failed in {len(boots)} of {planned} boots, {arm.text}")
            )
    return "\n".join(lines)


def describe_history(session: BisectSession) -> str:
    lines = []
    good = session.problem.good
    for number, run in enumerate(session.runs, 1):
        names = [
            f"{v.name} {v.values[value]}"
            for v, value, fine in zip(session.problem.variables, run.run, good, strict=True)
            if value != fine
        ]
        outcome = run.outcome
        if session.problem.measure and run.outcome in ("measured", "wrong"):
            outcome = f"{run.value:g} {session.problem.measure.unit}" + (
                ", WRONG" if run.outcome == "wrong" else ""
            )
        lines.append(
            format_row(f"run {number}", f"{outcome:<9}", ", ".join(names) or "all values as on the good machine")
        )
    return "\n".join(lines)


def describe_verdict(state: SessionState) -> str:
    runs = len(state.session.runs)
    if state.verdict == "guilty":
        assert state.confirmation is not None
        output = format_row(
            "GUILTY", f"{state.best_cause.text}, confirmed with {format_percent(state.confidence)} confidence"
        )
        return f"{output} after {runs} runs\n{describe_arms(state.confirmation)}"
    if state.verdict == "not-found":
        output = format_row(
            "NOT FOUND",
            f"{state.best_cause.text}, with {format_percent(state.confidence)} confidence after {runs} runs",
        )
        return (
            output + "\n" + format_row("next", "list other differences between the two machines, and start again")
        )
    if state.verdict == "not-explained":
        output = f"NOT EXPLAINED  no variable and no pair of them explains these {runs} runs"
        lines = [output]
        for confirmation in state.refuted:
            lines += [format_row("refuted", describe_refutation(state, confirmation)), describe_arms(confirmation)]
        return "\n".join([*lines, format_row("next", _advise_next_step(state))])
    if state.confirmation is not None:
        output = format_row(
            "OPEN",
            f"{runs} runs so far; suspect {state.best_cause.text}, {format_percent(state.confidence)} confirmed",
        )
        return f"{output}\n{describe_arms(state.confirmation)}"
    return (
        f"OPEN       {runs} runs so far, {format_percent(state.confidence)}: {state.best_cause.text}, not "
        "confirmed"
    )


def assess_suspect(confirmation: Confirmation) -> tuple[bool, bool]:
    """Return whether the suspect is sufficient for the fault, and whether it is necessary."""
    assert confirmation.judgement is not None
    present = confirmation.judgement.present[0]
    return bool(present[0] >= 0.5), bool((present[1:] < 0.5).all())


def describe_refutation(state: SessionState, confirmation: Confirmation) -> str:
    name = state.model.causes[confirmation.suspect].text
    sufficient, necessary = assess_suspect(confirmation)
    if sufficient:
        return f"{name}: enough to make the test fail, but it fails without it too"
    if necessary:
        return f"{name}: needed, but not enough alone"
    return f"{name}: neither needed nor enough"


def _advise_next_step(state: SessionState) -> str:
    for confirmation in state.refuted:
        names = " and ".join(
            state.session.problem.variables[variable].name
            for variable in state.model.causes[confirmation.suspect].variables
        )
        sufficient, necessary = assess_suspect(confirmation)
        if sufficient:
            return f"two independent causes are likely: keep {names} good, remove it from the file, start again"
        if necessary:
            return f"three or more together are likely: keep {names} bad, remove it from the file, start again"
    return "list other differences between the two machines; make the test fail more often; start again"


# --- speed ---


def describe_step(session: BisectSession, step: SpeedStep) -> dict[str, object]:
    """Return a step for a report: `change` is relative, in the unit of the measurement."""
    variable = session.problem.variables[step.variable]
    before = step.version - (1 if variable.bad > variable.good else -1)
    measure = session.problem.measure
    assert measure is not None
    change = step.share if measure.higher_is_better else 1 / (1 + step.share) - 1
    names = {"variable": variable.name, "from": variable.values[step.version], "before": variable.values[before]}
    return {**names, "slower": step.share < 0, "change": round(change, 4)}


def _format_step(session: BisectSession, step: SpeedStep) -> str:
    result = describe_step(session, step)
    kind = "slower" if result["slower"] else "faster"
    assert session.problem.measure is not None
    unit = session.problem.measure.unit
    return (
        f"{result['variable']} {result['from']} is {kind} than {result['before']}: {result['change']:+.1%} {unit}"
    )


def describe_speed_progress(session: BisectSession, state: SpeedState) -> str:
    """Return the number of runs, their maximum, and the likeliest steps."""
    result = sum(run.outcome in ("measured", "wrong") for run in session.runs)
    lines = [format_row("measured", f"{result} of at most {count_most_runs(session.problem)} runs")]
    for steps, chance in state.likeliest_hypotheses() if result > 1 else []:
        text = "; ".join(_format_step(session, item) for item in steps) or "no step"
        lines.append(format_row("", f"{format_percent(chance):>6}  {text}"))
    return "\n".join(lines)


def describe_speed_verdict(session: BisectSession, state: SpeedState) -> str:
    runs, sure = len(session.runs), format_percent(state.chance)
    steps = [_format_step(session, item) for item in state.steps()] or ["no version changes the speed"]
    if state.verdict in ("found", "no-step"):
        lines = [
            format_row("STEPS" if state.steps() else "NO STEP", steps[0]),
            *(format_row("", item) for item in steps[1:]),
        ]
        lines.append(format_row("", f"with {sure} confidence after {runs} runs"))
    elif state.verdict == "likely":
        lines = [format_row("LIKELY", steps[0]), *(format_row("", item) for item in steps[1:])]
        lines.append(
            format_row(
                "", f"with {sure} only, not {format_percent(state.confidence)}, after the {runs} runs planned"
            )
        )
        named = [f"{_format_step(session, step)}, {format_percent(chance)}" for step, chance in state.named()]
        lines += [format_row("sure", item) for item in named]
        lines.append(format_row("next", "reduce the noise of the test, or leave out versions; start again"))
    else:
        lines = [format_row("OPEN", f"{runs} runs so far")]
    for wrong_value in find_wrong_combinations(session.runs):
        text = ", ".join(f"{name} {value}" for name, value in format_setting(session, wrong_value).items())
        lines.append(format_row("wrong", f"the output is wrong with {text}: not measured again"))
    return "\n".join(lines)
