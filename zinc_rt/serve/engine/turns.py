"""Several models on one device, a step at a time: whose is next, by least virtual time."""

from __future__ import annotations

from collections.abc import Collection

from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.engine.served_model import ServedModel


def by_turn(models: Collection[ServedModel]) -> list[ServedModel]:
    """Those with anything to do, whose step is next first: where an interactive request waits, then by the
    device's time that each has had. Who comes back from idle has had as much as the least of the others."""
    busy = [model for model in models if not model.lost and model.pending]
    going = [model.virtual_seconds for model in busy if model.was_busy]
    for model in models:
        if model in busy and not model.was_busy and going:
            model.virtual_seconds = max(model.virtual_seconds, min(going))
        model.was_busy = model in busy
    return sorted(busy, key=lambda model: (not _interactive_waits(model), model.virtual_seconds))


def _interactive_waits(model: ServedModel) -> bool:
    return model.core.scheduler.queues.by_class[Priority.INTERACTIVE] > 0
