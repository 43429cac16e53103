"""Launched work by turns: what runs out of fuel lets the rest of the device go on, in any order."""

from __future__ import annotations

import pytest

from zinc_rt.sim.cp.clocks import WorkKind
from zinc_rt.sim.cp.work import LaunchedWork, PendingWork


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_endless_waves_before_a_fence_get_one_turn_at_a_time(seed: int | None) -> None:
    turns = []

    def run_endlessly() -> bool:
        turns.append(1)
        return False

    pending = PendingWork(seed)
    pending.launch(LaunchedWork(WorkKind.WAVES, "endless", run_endlessly))
    pending.launch(LaunchedWork(None, "fence", lambda: True))
    turns.clear()
    pending.run(64)
    assert len(turns) == 1 and len(pending) == 2
