"""Signed heads: the runner's key signs a history's head, and a gate accepts no other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from gate_evidence import bench_report, decide_criterion, record_report, result_names, validation_report

from zinc_rt.host.errors import InputError
from zinc_rt.perf.command import main
from zinc_rt.perf.history.chain import append_entry, read
from zinc_rt.perf.history.signed_head import contains_head, read_head, sign_head, verify_head

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def create_key(folder: Path, name: str = "runner") -> Path:
    key = folder / name
    line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL)
    return key


def write_allowed_signers(folder: Path, **keys: Path) -> Path:
    """A file of allowed signers, by name."""
    rows = [" ".join([name, *key.with_suffix(".pub").read_text().split()[:2]]) for name, key in keys.items()]
    path = folder / "signers"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def history_path(tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    for number in range(3):
        append_entry(path, "perf bench", {"number": number}, {"decode": 100.0 + number})
    return path


def test_head_signed_by_the_runner_verifies(tmp_path: Path, history_path: Path) -> None:
    key, path = create_key(tmp_path), tmp_path / "head.json"
    assert (
        main(["history", str(history_path), "--sign", str(key), "--signer", "gfx1201", "--head-file", str(path)])
        == 0
    )
    head = read_head(path)
    verify_head(head, write_allowed_signers(tmp_path, gfx1201=key))
    assert (head.sequence, head.head, head.signer) == (3, read(history_path).head, "gfx1201")
    assert contains_head(read(history_path), head)
    append_entry(history_path, "perf bench", {"number": 4}, {})
    assert contains_head(read(history_path), head), "a night later"


@pytest.mark.parametrize("change", ["head", "sequence", "at", "signer", "signature", "key", "name"])
def test_altered_head_or_other_key_is_rejected(tmp_path: Path, history_path: Path, change: str) -> None:
    key, other = create_key(tmp_path), create_key(tmp_path, "other")
    head, path = sign_head(read(history_path), key, "gfx1201"), tmp_path / "head.json"
    head.write(path)
    row = json.loads(path.read_text())
    signers = write_allowed_signers(tmp_path, gfx1201=key, sim=other)
    if change == "key":
        signers = write_allowed_signers(tmp_path, gfx1201=other)
    elif change == "name":
        signers = write_allowed_signers(tmp_path, gfx1200=key)
    elif change == "signature":
        row["signature"] = sign_head(read(history_path), other, "gfx1201").signature
    else:
        row[change] = {"head": "ab" * 32, "sequence": 2, "at": "2026-01-01T00:00:00+00:00", "signer": "sim"}[
            change
        ]
    path.write_text(json.dumps(row))
    with pytest.raises(InputError, match="is not from a key of"):
        verify_head(read_head(path), signers)


def test_gate_accepts_a_signed_head_and_refuses_what_was_recorded_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argument = record_report(tmp_path, bench_report(), validation_report())
    history, key, path = tmp_path / "history.jsonl", create_key(tmp_path), tmp_path / "signed.json"
    sign_head(read(history), key, "runner").write(path)
    signers = write_allowed_signers(tmp_path, runner=key)
    gate = ["gate", "--milestone", "M1", "--only", "decode", "--evidence", str(tmp_path / "0.json"),
            "--history", str(history)]  # fmt: skip
    assert main([*gate, "--head", str(path), "--signers", str(signers)]) == 77, "only the code is another"
    seen = capsys.readouterr().out
    assert "head:" not in seen and "edited:" not in seen and "stale:" in seen
    assert main([*gate, "--head", argument.head, "--signers", str(signers)]) == 2
    assert main([*gate, "--head", str(path)]) == 2
    assert (
        main(
            [
                *gate,
                "--head",
                str(path),
                "--signers",
                str(write_allowed_signers(tmp_path, runner=create_key(tmp_path, "b"))),
            ]
        )
        == 2
    )


def test_report_recorded_after_the_noted_head_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    argument = record_report(tmp_path, validation_report(), bench_report())
    assert argument.history is not None
    result = decide_criterion(replace(argument, head=argument.history.entries[0].hash))
    assert result_names(result) == {"head"} and "recorded after the head" in result.reason
    (tmp_path / "b").mkdir()
    argument = record_report(tmp_path / "b", bench_report(), validation_report())
    assert argument.history is not None
    result = decide_criterion(replace(argument, head=argument.history.entries[0].hash))
    assert result_names(result) == {"bits"}, "the proof is as old as the head too"


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"schema": "zinc-rt-head/1", "head": "ab"}'])
def test_file_without_a_signed_head_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "head.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a signed head"):
        read_head(path)


def test_unusable_key_is_an_error_with_the_command_that_makes_one(tmp_path: Path, history_path: Path) -> None:
    with pytest.raises(InputError, match="cannot sign"):
        sign_head(read(history_path), tmp_path / "none", "gfx1201")
    assert main(["history", str(history_path), "--signer", "x"]) == 2
    assert main(["history", str(history_path), "--sign", str(create_key(tmp_path)), "--signer", "a b"]) == 2
