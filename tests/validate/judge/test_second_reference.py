"""The second reference: its agreement, a token that it does not confirm, and its failure."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.engine.opening import find_model_file
from zinc_rt.validate.judge.answers import AnswerFault
from zinc_rt.validate.judge.oracle import open_oracle
from zinc_rt.validate.judge.questions import JudgeQuestion
from zinc_rt.validate.judge.second_reference import compare_references
from zinc_rt.validate.judge.verdict import EngineDefect

TEXT = (1, 20, 300, 40)


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """Return a program that is called as an interpreter, and whose values are those of values.npz."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport shutil, sys\nwords = sys.argv\n"
        f"assert words[words.index('--tokens') + 1] == '1,20,300,40;1,20,7', words\n"
        f"shutil.copy({str(tmp_path / 'values.npz')!r}, words[words.index('--out') + 1])\n"
        'print(\'{"version": "9", "backend": "cpu"}\')\n'
    )
    program.chmod(0o755)
    return program


def test_references_are_compared_at_every_position_and_wrong_token(interpreter: Path, tmp_path: Path) -> None:
    model = find_model_file("qwen3-q")
    with open_oracle(model, 64, threads=1) as reference:
        logits = np.array([token.logits for token in reference.predict(TEXT[:1], TEXT[1:])])
        (after,) = reference.predict((1, 20, 7))
        wrong = (after.best + 1) % len(after.logits)
        fault = AnswerFault(
            JudgeQuestion("q", "tokens", {}, (1, 20)), "alone", "token", "", None, 3, 1.0, (7, wrong)
        )
        findings = [EngineDefect("numerics", "", faults=[fault, fault])]

        def compare(shift: float, last: np.ndarray) -> str:
            np.savez(
                tmp_path / "values.npz", logits=logits + shift * (np.arange(logits.shape[1]) % 2), last=[last]
            )
            return compare_references(reference, str(interpreter), model, TEXT, findings).describe()

        right = compare(0, after.logits)
        assert right.startswith("transformers 9: KL 0 nats on average, 0 at most, over 4 positions")
        assert right.endswith("it confirms 1 of 1 wrong tokens; agrees")
        assert "confirms 0 of 1 wrong tokens; DISAGREES" in compare(0, -after.logits)
        assert "DISAGREES" in compare(0.5, after.logits)
        (tmp_path / "values.npz").unlink()
        failed = compare_references(reference, str(interpreter), model, TEXT, findings)
        assert failed.problem and not failed.agrees and "FileNotFoundError" in failed.describe()
