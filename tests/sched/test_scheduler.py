"""Any order of events: every request ends once, with the tokens it would have had alone, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from scheduler_machine import DraftingSchedulerMachine, PlainSchedulerMachine, SchedulerMachine
from support import Counts

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("machine", [SchedulerMachine, PlainSchedulerMachine, DraftingSchedulerMachine])
def test_random_events_keep_scheduler_invariants(machine: type[SchedulerMachine], slow_counts: Counts) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=slow_counts(130, 12_500),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )
