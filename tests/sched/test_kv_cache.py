"""Pages, prefix cache and state rows under any order of events; what is read is always what belongs there."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from kv_machine import KvCacheMachine, KvCacheMachineWithoutState
from support import Counts

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("machine", [KvCacheMachine, KvCacheMachineWithoutState])
def test_random_events_read_the_correct_kv_pages(machine: type[KvCacheMachine], slow_counts: Counts) -> None:
    examples = slow_counts(20, 3000)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )
