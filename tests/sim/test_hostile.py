"""Hostile processes beside a healthy one (hostile.py): some seconds of it; with --slow two minutes of eight."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sim import hostile
from support import Counts


@pytest.mark.rest
def test_hostile_clients_cannot_crash_leak_or_stall_the_device(tmp_path: Path, slow_counts: Counts) -> None:
    verdict = hostile.run_clients(slow_counts(4, 120) / 60, slow_counts(2, 8), 5, tmp_path)
    assert not verdict.wrong, verdict
    assert verdict.lives and verdict.checks > 5 and verdict.findings, "nothing hostile happened"


@pytest.mark.rest
def test_corrupted_result_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The healthy client's check can fail."""
    monkeypatch.setattr(hostile.outsider, "sdma_copy", lambda to, source, size_bytes: [0, 0, 0])
    verdict = hostile.run_clients(1 / 60, 0, 1, tmp_path)
    assert verdict.wrong and all("was copied" in item for item in verdict.wrong), verdict


def test_client_behaviour_is_determined_by_its_seed() -> None:
    known = [1, 2, 3]
    first, second, other = (hostile.random_packets(random.Random(seed), known) for seed in (1, 1, 2))
    assert first == second != other
