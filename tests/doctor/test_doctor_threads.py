"""Machines from public threads (threads/*.yaml) get the cause that the thread found; a sick one is never OK."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "threads"))

import split

from zinc_rt.doctor.bundle.redact import Redactor
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.diagnose import diagnose

LEAST_RIGHT = 0.95


@pytest.mark.parametrize("name", ["known", "held_out", "blind"])
def test_thread_machines_get_the_cause_of_their_thread(name: str) -> None:
    scores = [
        split.score_diagnosis(row, diagnose(split.make_capture(row), hung=row.get("hung", False)))
        for row in split.load_rows(name)
    ]
    wrong = [score for score in scores if not score.is_right]
    shown = "not shown, so that no rule is fitted to them" if name == "held_out" else wrong
    assert len(wrong) <= (1 - LEAST_RIGHT) * len(scores), shown
    assert all(score.safe for score in scores), shown


def test_bundle_of_a_thread_machine_gets_the_same_diagnosis() -> None:
    """The redaction keeps every line that a rule reads."""
    for row in (*split.load_rows("known"), *split.load_rows("held_out"), *split.load_rows("blind")):
        capture, hung = split.make_capture(row), row.get("hung", False)
        redacted, _ = Redactor().redact_files(dict(capture.files))
        if redacted == dict(capture.files):
            continue
        before, after = (
            [finding.id for finding in diagnose(capture, hung=hung).findings]
            for capture in (capture, MachineCapture(redacted, capture.unreadable))
        )
        assert after == before, row["name"]


def test_thread_machines_are_split_by_the_hash_of_their_link() -> None:
    known, held_out = split.load_rows("known"), split.load_rows("held_out")
    assert len(known) + len(held_out) >= 60
    assert not [row["name"] for row in known if split.is_held_out(row["source"])]
    assert not [row["name"] for row in held_out if not split.is_held_out(row["source"])]
    assert all(row["source"].startswith("https://") and row["truth"] for row in (*known, *held_out))


def test_blind_machines_are_new() -> None:
    blind = split.load_rows("blind")
    earlier = {row["source"] for row in (*split.load_rows("known"), *split.load_rows("held_out"))}
    sources = [row["source"] for row in blind]
    assert not earlier & set(sources) and len(set(sources)) == len(sources)
    assert all(row["source"].startswith("https://") and row["truth"] for row in blind)
    assert {row["round"] for row in blind} == set(range(1, max(row["round"] for row in blind) + 1))
