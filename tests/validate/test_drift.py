"""Rounding that grew along depth is told from a fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zinc_rt.golden.embedded import embedded
from zinc_rt.validate import limits
from zinc_rt.validate.command import main

PAIR = embedded()[1]


def validate(golden: Path) -> int:
    return main(["--model", str(PAIR.model), "--golden", str(golden), "--no-cache"])


def rewritten(path: Path, **changed: np.ndarray) -> Path:
    with np.load(PAIR.golden) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{**arrays, **changed})  # type: ignore[arg-type]
    return path


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain limit between what a layer adds on its own and what three add together."""
    monkeypatch.setattr(limits, "GOLDEN", limits.Limit(max_abs=4.7e-6, why="for this test"))
    monkeypatch.setattr(limits, "OF_PEAK", 0.0)


@pytest.mark.usefixtures("tight")
def test_what_every_layer_keeps_alone_passes_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(PAIR.golden) == 0
    shown = capsys.readouterr().out
    assert "pass  l_out-1..2: drift: each layer on its own is within the limit" in shown


@pytest.mark.usefixtures("tight")
def test_one_layer_wrong_on_its_own_forgives_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(PAIR.golden) as archive:
        l_out = archive["l_out_deq"].copy()
    l_out[1] *= np.float32(1 + 1e-5)  # near enough to look like rounding
    assert validate(rewritten(tmp_path / "moved.npz", l_out_deq=l_out)) == 1
    assert "drift" not in capsys.readouterr().out


def test_a_large_difference_is_never_drift(tmp_path: Path) -> None:
    with np.load(PAIR.golden) as archive:
        logits = archive["logits_deq"] * np.float32(1.01)
    assert validate(rewritten(tmp_path / "scaled.npz", logits_deq=logits)) == 1
