"""Hang reports: a file with the backend's error and the requests of a failed step, for debugging."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from zinc_rt.backends.base import Backend
from zinc_rt.host import files
from zinc_rt.host.errors import OutputError
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.state import SchedulerState
from zinc_rt.serve.observe.logs import LOGGER

KEPT = 32  # of the latest


def report_directory() -> Path:
    """Return the folder of the hang reports. It may not exist."""
    return files.state_directory() / "hangs"


def save_hang(model: str, scheduler: SchedulerState, backend: Backend, plan: StepPlan, error: Exception) -> str:
    """Write the report of a failed step, without prompt text. Return its id, which is the file name."""
    id = f"hang-{datetime.now(UTC):%Y%m%dT%H%M%S}-{scheduler.counts.failed_steps + 1}"
    slots = sorted({int(slot) for slot in plan.slot[: plan.tokens]})
    present = [request for slot in slots if (request := scheduler.slots.requests[slot]) is not None]
    device = backend.device
    lines = [
        f"{id}: step {plan.number} of model {model} failed",
        f"tier {backend.spec.tier}, device {device.name} {device.arch}{' SIMULATED' * device.simulated}, "
        f"kernel {device.kernel}, firmware {device.firmware}, ordering {backend.ordering}"
        f"{f', prompts {prefill}' if (prefill := scheduler.limits.prefill_ordering) else ''}",
        f"{plan.tokens} tokens, {plan.decodes} decodes, {len(plan.prompts)} prompts, {plan.rows} rows",
        *(
            f"slot {r.slot}: request {r.number}.{r.choice} of tenant {scheduler.tenants[r.tenant].name}, "
            f"{r.state.value}, {r.computed} computed, {r.generated} made, {r.failures} failed steps before"
            for r in present
        ),
        "",
        f"{type(error).__name__}: {error}",
    ]
    path = report_directory() / f"{id}.txt"
    event = {"model": model, "report": str(path)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, lambda file: file.write("\n".join([*lines, ""]).encode()))
        for old in sorted(path.parent.glob("hang-*.txt"))[:-KEPT]:
            old.unlink(missing_ok=True)
    except (OSError, OutputError) as unwritten:
        event["unwritten"] = str(unwritten)
    LOGGER.warning("hang", extra=event)
    return id
