"""A model file that says something wrong is refused in words, or runs; it never brings the engine down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import Counts

pytestmark = pytest.mark.rest

FUZZ = Path(__file__).with_name("model_fuzz.py")


def test_damaged_models_run_or_are_rejected(slow_counts: Counts) -> None:
    count = slow_counts(90, 4000)
    run = subprocess.run(
        [sys.executable, str(FUZZ), str(count), "1"],
        capture_output=True,
        text=True,
        timeout=120 + count,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    outcomes = json.loads(run.stdout)
    assert sum(outcomes.values()) == count
    assert outcomes["InputError"] > count // 4
    assert outcomes["ran"] > count // 20
