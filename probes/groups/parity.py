"""P54: user queues and KFD queues compute the same results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.endings import make_child_outcome, run_in
from zinc_rt.probes.groups.dispatch import (
    GRID,
    GROUP,
    SHADER_SHARED,
    expect_ids,
    list_ids,
    read_ids,
    read_user_data,
    run_lanes,
    run_store,
)
from zinc_rt.probes.groups.shader_memory import LDS_SIZES, run_lds, run_spill
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import find_first_difference
from zinc_rt.probes.kit.shaders import (
    ShaderBench,
    allocate_scratch,
    explain_missing_kernels,
    find_generation_in_child,
    load_kernel,
)
from zinc_rt.probes.outcome import T1, T2, Outcome, ProbeFailed, make_skip, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

SECONDS = 60.0  # of one tier's kernels


@probe(
    "P54",
    "dispatch, and parity with t1",
    (T2,),
    hazard=1,
    needs=("P33", "P34", "P35", "P36", "P37"),
    seconds=2 * SECONDS + 30,
)
@proves(
    "the kernels of P33 to P37 give the same results on user queues, byte for byte",
    passes_when="every result correct, and equal to that of a KFD queue",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("differs"),
    (
        "the tiers see different memory or state: cache bits of the fence (GL2 write-back), scratch, or "
        "the EOP buffer of user queues"
    ),
    "run -k P41 and -k P37 on both tiers to distinguish these",
)
@fails(
    symptom("nothing-stored", "mixed", "wrong-ids", "wrong-count"),
    "a kernel that is correct alone gives wrong results here",
    "run that tier's P33 to P37; they passed before this probe",
)
def probe_parity(c: ProbeContext) -> Outcome:
    """Run each tier in a separate process; this process opens nothing."""
    reason = explain_missing_kernels(find_generation_in_child(c))
    if reason:
        return make_skip(reason)
    outcomes = {tier: _run(c, tier) for tier in (T2, T1)}
    for tier, outcome in outcomes.items():
        if outcome.status == "fail" and tier == T1 and outcome.symptom in ("errno", "unsupported"):
            return make_skip(f"t1 is not available for comparison: {outcome.reason}")
        if outcome.status == "fail":
            raise ProbeFailed(
                outcome.symptom, f"{tier}: {outcome.reason}", measure=outcome.measure, report=outcome.report
            )
    bytes_compared = 0
    for name, expected in outcomes[T1].measure.items():
        got = outcomes[T2].measure[name]
        location = find_first_difference(got, expected)
        if location is not None:
            raise ProbeFailed(
                "differs", f"{name}: byte {location} is {got[location]:#x} on t2 and {expected[location]:#x} on t1"
            )
        bytes_compared += len(expected)
    log = tuple(line for outcome in outcomes.values() for line in outcome.log)
    notes = tuple(note for outcome in outcomes.values() for note in outcome.notes)
    return Outcome(
        "pass", measure={"kernels": len(outcomes[T1].measure), "bytes": bytes_compared}, notes=notes, log=log
    )


def _run(c: ProbeContext, tier: str) -> Outcome:
    return make_child_outcome(run_in_child(partial(_run_in_tier, ProbeContext(c.spec, tier, c.options)), SECONDS))


def _run_in_tier(c: ProbeContext) -> Iterator[Outcome]:
    return run_in(c, lambda context: passed(**collect_results(ShaderBench(context))))


def collect_results(bench: ShaderBench) -> dict[str, Any]:
    """Return the checked results of the kernels of P33 to P37 that do not depend on the order of waves."""
    ids = read_ids(bench, GRID, GROUP)
    expect_ids(ids, list_ids(GRID), list_ids(GROUP))
    room = allocate_scratch(bench.context, load_kernel("scratch"))
    return {
        "store": run_store(bench),
        "user_data": read_user_data(bench),
        "ids": repr(sorted(ids.items())).encode(),
        **{f"lanes{wave}": run_lanes(bench, wave) for wave in (32, 64)},
        **{f"lds{size}": run_lds(bench, size) for size in LDS_SIZES},
        "scratch": run_spill(bench, room),
    }
