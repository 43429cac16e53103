"""The stored logs still replay, to the bit: what a night compares with."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.replay.command import main

ROOT = Path(__file__).resolve().parents[2]
LOGS = sorted((ROOT / "ci" / "corpus").glob("*.zlog"))


def test_every_embedded_model_has_a_log() -> None:
    assert [log.stem for log in LOGS] == ["gemma4-q", "qwen3-q", "qwen35moe-q"]


@pytest.mark.parametrize("tier", ["t_cpu", "t1", "t2"])
@pytest.mark.parametrize("log", LOGS, ids=[log.stem for log in LOGS])
@pytest.mark.rest(keep=1)
def test_stored_log_replays_on_every_tier(log: Path, tier: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = ROOT / "golden" / f"{log.stem}.gguf"
    assert main([str(log), "--model", str(model), "--tiers", tier, "--device", "sim"]) == 0
    assert "8 outputs of 4 steps as recorded" in capsys.readouterr().out


def test_stored_logs_use_first_format_version_which_is_still_readable() -> None:
    assert {int.from_bytes(log.read_bytes()[4:8], "little") for log in LOGS} == {1}
