"""Forged histories, and honest reports beside them: only a head noted elsewhere shows that a history is whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_evidence import (
    bench_report,
    decide_criterion,
    past_timestamp,
    record_report,
    result_names,
    timed_runs,
    validation_report,
)

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.version import digest_runtime
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identify_model
from zinc_rt.perf.command import main as perf
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.offered import GateInput, SubmittedReport
from zinc_rt.perf.gate.report_files import collect_reports
from zinc_rt.perf.history.chain import append_entry, read
from zinc_rt.perf.refusals.rules import find_refusals
from zinc_rt.validate.command import main as validate


def test_history_without_head_proves_nothing(tmp_path: Path) -> None:
    argument = record_report(tmp_path, bench_report(), validation_report())
    result = decide_criterion(replace(argument, head=""))
    assert result.status == "blocked" and result_names(result) == {"head"}
    assert "was not recorded" in result.reason


def forged_history(folder: Path, forgery: str) -> GateInput:
    """`forgery` the file is forged, after its head was noted."""
    fast, slow = bench_report(), bench_report()
    slow["started"] = past_timestamp(hours=1)
    slow["results"][0]["measure"] |= {"runs": timed_runs(1 / 100), "tokens_per_second": 100.0}
    argument = record_report(folder, fast, validation_report(), slow)
    path, offered = folder / "history.jsonl", [argument.reports[0], argument.reports[1]]
    lines = path.read_text().splitlines()
    if forgery == "its end left out":
        path.write_text("\n".join(lines[:2]) + "\n")
    elif forgery == "made anew":
        path.unlink()
        for item in offered:
            append_entry(path, item.command, item.report, {})
    elif forgery == "a line of no JSON":
        path.write_text("\n".join([lines[0], "{", *lines[1:]]) + "\n")
    elif forgery == "a line twice":
        path.write_text("\n".join([*lines, lines[0]]) + "\n")
    elif forgery == "another schema":
        path.write_text(path.read_text().replace("zinc-rt-history/1", "zinc-rt-history/9", 1))
    elif forgery == "as another command's":
        path.unlink()
        for item in offered:
            append_entry(path, "run", item.report, {})
        return replace(argument, reports=offered, history=read(path), head=read(path).head)
    return replace(argument, reports=offered, history=read(path))


@pytest.mark.parametrize(
    ("forgery", "rule"),
    [
        ("its end left out", "head"),
        ("made anew", "head"),
        ("a line of no JSON", "edited"),
        ("a line twice", "edited"),
        ("another schema", "edited"),
        ("as another command's", "edited"),
    ],
)
def test_forged_history_is_rejected(forgery: str, rule: str, tmp_path: Path) -> None:
    result = decide_criterion(forged_history(tmp_path, forgery))
    assert result.status == "blocked" and rule in result_names(result), result.reason


def test_report_recorded_before_its_start_is_rejected(tmp_path: Path) -> None:
    argument = record_report(tmp_path, bench_report(), validation_report())
    assert argument.history is not None
    early = [replace(entry, at="2020-01-01T00:00:00+00:00") for entry in argument.history.entries]
    result = decide_criterion(replace(argument, history=replace(argument.history, entries=tuple(early))))
    assert result_names(result) == {"stale", "bits", "order"} and "recorded before" in result.reason


def test_omitted_later_report_is_requested(tmp_path: Path) -> None:
    """The slow one of the next day is in the history, and not among what is put forward."""
    result = decide_criterion(forged_history(tmp_path, ""))
    assert result_names(result) == {"edited"} and "entry 3, that is withheld" in result.reason


def test_model_file_takes_precedence_over_report(tmp_path: Path) -> None:
    """--models: the digest is right, and the shape is the file's, not what the report says of it."""
    argument = record_report(tmp_path, bench_report(), validation_report())
    small = {"digest": "ab" * 32, **identify_model(read_gguf(FOLDER / "qwen35moe-q.gguf")).as_dict()}
    result = decide_criterion(replace(argument, model_digest="", models={"ab" * 32: small}))
    assert result_names(result) == {"digest"} and "the file of this digest has" in result.reason


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
    reports = collect_reports([tmp_path / "b.json", tmp_path / "v.json"])[0]
    digest = reports[0].model_digests[0]
    bench_result = reports[0].result("decode")
    assert bench_result is not None
    argument = GateInput(reports, (), known, digest, known.head, digest_runtime())
    case = SubmittedReport(replace(decode, tier="t_cpu_native"), reports[0], bench_result, argument)
    reasons = [
        reason for reason in find_refusals(case) if "the first token" not in reason
    ]  # late on a busy machine
    refused = {reason.partition(":")[0] for reason in reasons}
    assert refused <= REFUSES_A_TOY, reasons
    assert {"hardware", "tokens", "model", "drift"} <= refused
