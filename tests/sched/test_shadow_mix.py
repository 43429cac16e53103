"""Mixes on a shadow device: the same run for a seed, and what is reported of a planted fault."""

from __future__ import annotations

import pytest

from zinc_rt.sched import commit, drafting
from zinc_rt.sched.mixes.shadow_mix import run_shadow_mix


def test_mixes_draft_and_compute_again() -> None:
    runs = [run_shadow_mix(seed, roles=seed % 2 == 1) for seed in range(20)]
    assert not [problem for run in runs for problem in run.problems]
    assert len({run.settings for run in runs}) == len(runs)
    assert sum(run.accepted for run in runs) > 20 and sum(run.recomputed for run in runs) > 10
    assert runs[3] == run_shadow_mix(3, roles=True)


def test_device_checks_masks_of_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = drafting._begin_masks
    monkeypatch.setattr(drafting, "_begin_masks", lambda s, mask, tokens: real(s, mask, [0 for _ in tokens]))
    problems = [problem for seed in range(12) for problem in run_shadow_mix(seed).problems]
    assert any("its token mask is that of other tokens" in text for _, text in problems)


def test_wrong_delivery_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit._join_batches
    monkeypatch.setattr(commit, "_join_batches", lambda step, batches, ended: real(step, batches[::-1], ended))
    problems = [problem for seed in range(12) for problem in run_shadow_mix(seed).problems]
    assert {name for name, _ in problems} == {"deliveries"}
    assert "delivered" in problems[0][1] and "wrong from" in problems[0][1]
