"""Forged histories, and honest reports beside them: only a head noted elsewhere shows that a history is whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_evidence import (
    ago,
    bench_report,
    decided,
    names_of,
    put_forward,
    timed,
    validation,
)

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.version import runtime_version
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identity
from zinc_rt.perf.command import main as perf
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.offered import GateInput, OfferedReport
from zinc_rt.perf.gate.report_files import collect
from zinc_rt.perf.history.chain import append, read
from zinc_rt.perf.refusals.rules import refusals
from zinc_rt.validate.command import main as validate


def test_history_without_head_proves_nothing(tmp_path: Path) -> None:
    argument = put_forward(tmp_path, bench_report(), validation())
    result = decided(replace(argument, head=""))
    assert result.status == "blocked" and names_of(result) == {"head"}
    assert "was not recorded" in result.reason


def forged_history(folder: Path, how: str) -> GateInput:
    """`how` the file is forged, after its head was noted."""
    fast, slow = bench_report(), bench_report()
    slow["started"] = ago(hours=1)
    slow["results"][0]["measure"] |= {"runs": timed(1 / 100), "tokens_per_second": 100.0}
    argument = put_forward(folder, fast, validation(), slow)
    path, offered = folder / "history.jsonl", [argument.reports[0], argument.reports[1]]
    lines = path.read_text().splitlines()
    if how == "its end left out":
        path.write_text("\n".join(lines[:2]) + "\n")
    elif how == "made anew":
        path.unlink()
        for item in offered:
            append(path, item.command, item.report, {})
    elif how == "a line of no JSON":
        path.write_text("\n".join([lines[0], "{", *lines[1:]]) + "\n")
    elif how == "a line twice":
        path.write_text("\n".join([*lines, lines[0]]) + "\n")
    elif how == "another schema":
        path.write_text(path.read_text().replace("zinc-rt-history/1", "zinc-rt-history/9", 1))
    elif how == "as another command's":
        path.unlink()
        for item in offered:
            append(path, "run", item.report, {})
        return replace(argument, reports=offered, history=read(path), head=read(path).head)
    return replace(argument, reports=offered, history=read(path))


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ("its end left out", "head"),
        ("made anew", "head"),
        ("a line of no JSON", "edited"),
        ("a line twice", "edited"),
        ("another schema", "edited"),
        ("as another command's", "edited"),
    ],
)
def test_forged_history_is_rejected(how: str, rule: str, tmp_path: Path) -> None:
    result = decided(forged_history(tmp_path, how))
    assert result.status == "blocked" and rule in names_of(result), result.reason


def test_report_recorded_before_its_start_is_rejected(tmp_path: Path) -> None:
    argument = put_forward(tmp_path, bench_report(), validation())
    assert argument.history is not None
    early = [replace(entry, at="2020-01-01T00:00:00+00:00") for entry in argument.history.entries]
    result = decided(replace(argument, history=replace(argument.history, entries=tuple(early))))
    assert names_of(result) == {"stale", "bits", "order"} and "recorded before" in result.reason


def test_withheld_later_report_is_requested(tmp_path: Path) -> None:
    """The slow one of the next day is in the history, and not among what is put forward."""
    result = decided(forged_history(tmp_path, ""))
    assert names_of(result) == {"edited"} and "entry 3, that is withheld" in result.reason


def test_model_file_takes_precedence_over_report(tmp_path: Path) -> None:
    """--models: the digest is right, and the shape is the file's, not what the report says of it."""
    argument = put_forward(tmp_path, bench_report(), validation())
    small = {"digest": "ab" * 32, **identity(read_gguf(FOLDER / "qwen35moe-q.gguf")).as_dict()}
    result = decided(replace(argument, model_digest="", models={"ab" * 32: small}))
    assert names_of(result) == {"digest"} and "the file of this digest has" in result.reason


REFUSES_A_TOY = {  # on this machine's processor, without sensors of a board
    *(
        "hardware",
        "tokens",
        "workload",
        "model",
        "drift",
        "spread",
        "ceiling",
        "graph",
        "board",
        "sensors",
        "bits",
    ),
}


def test_genuine_command_output_is_rejected_only_for_toy_model_and_tier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of bench and validate themselves, of a toy on a tier that is no GPU: all else about them is as the
    rules want it, so that evidence of the card with the right model would do."""
    model, history = str(FOLDER / "qwen3-q.gguf"), str(tmp_path / "h.jsonl")
    for name in ("ZINC_RT_TIER", "ZINC_RT_LM_HEAD_ROWS"):
        monkeypatch.delenv(name, raising=False)
    load = ["--prompt-tokens", "4", "--tokens", "4", "--runs", "3", "--ctx", "64"]
    bench = ["bench", "--model", model, "--tier", "t_cpu_native", *load, "--history", history]
    assert perf([*bench, "--json", str(tmp_path / "b.json")]) == 0
    tiers = ["--tiers", "t_cpu_native,t_cpu", "--ctx", "64", "--json", str(tmp_path / "v.json")]
    assert validate(["--model", model, *tiers]) == 0
    assert perf(["history", history, "--add", str(tmp_path / "v.json")]) == 0
    capsys.readouterr()
    known = read(Path(history))
    decode = next(criterion for criterion in find_milestone("M1").criteria if criterion.id == "decode")
    reports = collect([tmp_path / "b.json", tmp_path / "v.json"])[0]
    digest = reports[0].model_digests[0]
    bench_result = reports[0].result("decode")
    assert bench_result is not None
    argument = GateInput(reports, (), known, digest, known.head, runtime_version())
    case = OfferedReport(replace(decode, tier="t_cpu_native"), reports[0], bench_result, argument)
    refused = {reason.partition(":")[0] for reason in refusals(case)}
    assert refused <= REFUSES_A_TOY, refusals(case)
    assert {"hardware", "tokens", "model", "drift"} <= refused
