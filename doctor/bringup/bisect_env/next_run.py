"""The next run of a fault bisection: of the confirmation if a suspect is tested, else of the search."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from zinc_rt.doctor.bringup.bisect_env.output import find_boot_name
from zinc_rt.host.errors import CheckFailed

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.bisect_env.propose import Proposal
    from zinc_rt.doctor.bringup.bisect_env.state import SessionState


def propose_run(arguments: argparse.Namespace, state: SessionState) -> Proposal:
    """Return the next run: from the arm whose turn it is, or from the search."""
    import numpy as np

    from zinc_rt.doctor.bringup.bisect_env.propose import Proposal, possible_runs, propose, run_minutes
    from zinc_rt.doctor.bringup.bisect_env.state import compute_boot_chances

    session, boot = state.session, find_boot_name(arguments)
    arm = state.find_current_arm()
    if arm is not None:
        run = np.array([arm.run])
        if not len(possible_runs(run, session.impossible)):
            raise CheckFailed(
                f"the suspect cannot be confirmed: a run {arm.text} was recorded as impossible to set up",
                next="record --with NAME=VALUE of the values that can be set, or zinc-rt bisect-env status",
            )
        used = any(run.boot == boot for run in session.runs)
        cost = run_minutes(session.problem, run, session.now, reboot=used)
        return Proposal(arm.run, 0.0, float(cost[0]))
    earlier = [
        (state.model.find_present_causes(np.array([run.run]))[:, 0], run.outcome == "fail")
        for run in session.runs
        if run.boot == boot and run.outcome in ("pass", "fail")
    ]
    in_boot = compute_boot_chances(state.model, earlier)
    proposal = propose(session.problem, state.model, state.posterior, session.now, session.impossible, in_boot)
    if proposal is None:
        raise CheckFailed(
            "every combination of these values was recorded as impossible to set up",
            next="--because NAME,NAME names the values that exclude each other; zinc-rt bisect-env status",
        )
    return proposal
