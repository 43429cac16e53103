"""Attempts to fool a gate, one a row: each is refused with its reason, and without the attempt the gate passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    CODE,
    NODES,
    add_peer,
    bench_report,
    past_timestamp,
    record_report,
    scattered_runs,
    timed_runs,
    validation_report,
)

from zinc_rt.cli.report import Result
from zinc_rt.host.errors import InputError
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.offered import GateInput
from zinc_rt.perf.gate.report_files import ReportFile, collect_reports
from zinc_rt.perf.gate.verdict import GateReport, evaluate
from zinc_rt.perf.history.chain import append_entry, read
from zinc_rt.perf.intervals import compute_ratio_interval, compute_wilson_lower_bound
from zinc_rt.perf.refusals.rules import RULES
from zinc_rt.perf.structure.lab import Lab

Spoil = Callable[[dict[str, Any], dict[str, Any]], None]


def decide_criterion(reports: GateInput, only: str = "decode", milestone: str = "M1") -> Result:
    with Lab() as lab:
        (result,) = evaluate(find_milestone(milestone), lab, reports, only=only)
    return result


def set_bench(path: str, value: Any) -> Spoil:
    """Change one field of the bench report: "device.simulated"."""

    def change_report(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        *folders, last = path.split(".")
        location = bench
        for name in folders:
            location = location[int(name)] if isinstance(location, list) else location[name]
        location[last] = value

    return change_report


def change_valid(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    return lambda bench, valid: change(valid) and None


def set_runs(*seconds: float, tokens: int = 128) -> Spoil:
    """Runs of `tokens` tokens with that many seconds each, and a matching summary."""

    def change_report(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        measure = bench["results"][0]["measure"]
        measure["runs"] = [timed_runs(item, 1, tokens, seed)[0] for seed, item in enumerate(seconds)]
        measure["tokens_per_second"] = 1 / sorted(seconds)[len(seconds) // 2]

    return change_report


def set_samples(field: str, *values: float) -> Spoil:
    def change_report(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for sample, value in zip(bench["details"]["samples"], values, strict=True):
            sample[field] = value

    return change_report


def repeat_first_run(bench: dict[str, Any]) -> None:
    measure = bench["results"][0]["measure"]
    measure["runs"] = [measure["runs"][0]] * len(measure["runs"])


T = 1 / 150
ATTEMPTS: dict[str, tuple[Spoil, str]] = {
    "a simulated device": (set_bench("device.simulated", True), "simulated device"),
    "a device that does not say": (set_bench("device.simulated", None), "simulated device"),
    "another card": (set_bench("device.name", "Radeon RX 9070"), "needs gfx1201 hardware (R9700)"),
    "another chip under the name": (set_bench("device.arch", "gfx1100"), "gfx1100"),
    "a shortcut in the report": (set_bench("shortcuts", ["LM head capped"]), "LM head capped"),
    "LM head rows": (set_bench("details.settings.lm_head_rows", 4096), "lm_head_rows = 4096"),
    "a decode budget": (set_bench("details.settings.max_decode_tokens", 8), "max_decode_tokens = 8"),
    "fewer experts": (set_bench("details.settings.decode_topk", 1), "decode_topk = 1"),
    "another attention scale": (set_bench("details.settings.gemma4_attn_scale", 1.0), "gemma4_attn_scale"),
    "a clamp left unsaid": (set_bench("details.settings", {}), "is not recorded"),
    "127 tokens": (set_runs(*[T] * 5, tokens=127), "127 generated tokens"),
    "eight tokens": (set_runs(*[T] * 5, tokens=8), "8 generated tokens"),
    "one run": (set_runs(T), "1 runs"),
    "another tier": (set_bench("device.tier", "t1"), "ran on t1"),
    "another tier's result": (set_bench("results.0.tier", "t_cpu"), "ran on t_cpu"),
    "nodes left on the host": (set_bench("direct_compute_ops", 490), f"490 of {NODES} nodes"),
    "another number of slots": (set_bench("details.workload.slots", 4), "4 slots"),
    "a short context": (set_bench("ctx", 512), "context of 512"),
    "another model": (set_bench("model.digest", "cd" * 32), "another model"),
    "another architecture": (set_bench("model.architecture", "qwen3"), "another model"),
    "a cooler first than last": (
        set_samples("gpu_temperature_c", 40, 41, 42, 50, 55, 60, 70, 71, 72),
        "thermal drift",
    ),
    "clocks that fall": (set_samples("gpu_clock_mhz", *[2350.0] * 4, *[2000.0] * 5), "clock drift"),
    "no clocks": (set_bench("details.samples", []), "drift cannot be excluded"),
    "runs far apart": (set_runs(T, T * 1.2, T, T * 0.9, T), "spread"),
    "runs that slow down": (set_runs(T, T * 1.02, T * 1.04, T * 1.06, T * 1.07), "speed drift"),
    "a summary its samples deny": (set_bench("results.0.measure.tokens_per_second", 240.0), "its own samples 150"),
    "no samples": (set_bench("results.0.measure.runs", []), "no raw samples"),
    "nonsense for samples": (set_bench("results.0.measure.runs", "150"), "cannot be read"),
    "other code": (set_bench("details.code", "beef" * 16), "stale"),
    "no code version": (set_bench("details.code", None), "stale"),
    "bits of another model": (change_valid(lambda v: v["model"].update(digest="cd" * 32)), "no evidence of bit"),
    "bits on another device": (
        change_valid(lambda v: v["details"]["devices"]["t2"].update(simulated=True)),
        "another device: simulated",
    ),
    "bits of another driver": (
        change_valid(lambda v: v["details"]["devices"]["t2"].update(kernel="6.17")),
        "another device: kernel",
    ),
    "bits of other code": (change_valid(lambda v: v["details"].update(code="beef")), "of other code"),
    "bits within a tolerance": (change_valid(lambda v: v["results"][1]["limit"].clear()), "not equal to the bit"),
    "bits that differ": (
        change_valid(lambda v: v["results"][0]["measure"].update(equal_bits=False)),
        "not equal to the bit",
    ),
    "no logits compared": (change_valid(lambda v: v["results"].pop()), "layers or logits are missing"),
    "one node": (set_bench("details.workload.nodes", 1), "1 nodes, the graph of"),
    "an idle clock": (set_samples("gpu_clock_mhz", *[500.0] * 9), "500 MHz in the median"),
    "another card's memory": (set_bench("device.memory_bytes", 16 << 30), "16 GiB of memory"),
    "one run three times": (lambda bench, valid: repeat_first_run(bench), "repeats tokens of run 0"),
    "a prompt of another length": (set_bench("results.1.measure.prompt_tokens", 512), "prefill of 512 tokens"),
    "an old report": (set_bench("started", "2020-01-01T00:00:00+00:00"), "days ago"),
    "bits of the other tier": (
        change_valid(lambda v: v["details"].update(devices={"t1": {}})),
        "t2 was not validated",
    ),
}  # fmt: skip


def test_unmodified_report_passes(tmp_path: Path) -> None:
    result = decide_criterion(record_report(tmp_path, bench_report(), validation_report()))
    assert (result.status, round(result.measure["value"])) == ("pass", 150)


@pytest.mark.rest(keep=16)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_attempt_to_fool_gate_is_rejected_with_reason(attempt: str, tmp_path: Path) -> None:
    bench, valid = bench_report(), validation_report()
    spoil, reason = ATTEMPTS[attempt]
    spoil(bench, valid)
    result = decide_criterion(record_report(tmp_path, bench, valid))
    assert result.status == "blocked"
    assert reason in result.reason
    assert "needs gfx1201 hardware (R9700)" in result.reason


def test_every_rule_is_attempted(tmp_path: Path) -> None:
    """A rule that no attempt trips would be a rule nobody has seen work."""
    from zinc_rt.perf.gate.offered import GateInput, SubmittedReport

    tripped = set()
    for spoil, _ in ATTEMPTS.values():
        bench, valid = bench_report(), validation_report()
        spoil(bench, valid)
        offered = [ReportFile(tmp_path / "b", bench), ReportFile(tmp_path / "v", valid)]
        criterion = find_milestone("M1").criteria[-2]
        argument = GateInput(offered, model_digest="ab" * 32, code=CODE)
        case = SubmittedReport(criterion, offered[0], bench["results"][0], argument)
        for name, rule in RULES.items():
            try:
                tripped |= {name} if rule(case) else set()
            except (TypeError, ValueError):
                tripped.add(name)
    assert tripped == set(RULES)


def make_peer_report(own_speeds: float = 150.0, peer_speeds: float = 160.0) -> dict[str, Any]:
    """The bench report with runs of another program in addition to its own."""
    return add_peer(bench_report(), own_speeds, peer_speeds)


def test_peer_is_judged_by_lower_end_of_its_interval(tmp_path: Path) -> None:
    result = decide_criterion(record_report(tmp_path, make_peer_report(), validation_report()), "against-peer")
    pairs = make_peer_report()["results"][1]["measure"]["pairs"]
    low = compute_ratio_interval(*zip(*pairs, strict=True))[1]
    assert (result.status, result.measure["value"]) == ("pass", pytest.approx(low))
    assert low < 150 / 160


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda result: result.update(reference=""), "command is not recorded"),
        (lambda result: result["measure"].update(pairs=[[150.0, 160.0]]), "no raw samples"),
        (lambda result: result["measure"].update(pairs=[[150.0, 160.0]] * 2), "2 runs"),
        (lambda result: result["measure"].update(pairs=[[300.0, 160.0]] * 5, ratio_low=1.875), "not the runs"),
    ],
)
def test_peer_not_run_alongside_ours_is_rejected(
    change: Callable[[dict[str, Any]], Any], reason: str, tmp_path: Path
) -> None:
    bench = make_peer_report()
    change(bench["results"][1])
    result = decide_criterion(record_report(tmp_path, bench, validation_report()), "against-peer")
    assert result.status == "blocked" and reason in result.reason


@pytest.mark.parametrize(("prompt", "status"), [(128, "pass"), (16, "blocked")])
def test_short_prompt_is_not_accepted_as_prefill(prompt: int, status: str, tmp_path: Path) -> None:
    bench, valid = bench_report(), validation_report()
    bench["device"]["tier"] = "t1"
    bench["details"]["workload"]["prompt_tokens"] = prompt
    runs = scattered_runs(prompt / 300.0)
    speed = {"tokens_per_second": prompt / runs[2], "prompt_tokens": prompt, "runs": runs}
    bench["results"] = [{"id": "prefill", "tier": "t1", "measure": speed}]
    valid["details"]["devices"]["t1"] = valid["details"]["devices"].pop("t2")
    for item in valid["results"]:
        item["tier"] = "t1"
    result = decide_criterion(record_report(tmp_path, bench, valid), "prefill", "M2")
    assert result.status == status
    assert status == "pass" or "a prompt of 16 tokens" in result.reason


STATEMENT = {
    "schema": "zinc-rt-statement/1",
    "criterion": "M0/laptop",
    "by": "A",
    "date": "2026-01-31",
    "saw": "text",
}


def write_statement(folder: Path, **changes: str) -> GateInput:
    path = folder / "s.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in {**STATEMENT, **changes}.items()))
    return GateInput(statements=collect_reports([path])[1])


def test_statement_passes_only_its_criterion(tmp_path: Path) -> None:
    assert decide_criterion(write_statement(tmp_path), "laptop", "M0").status == "pass"
    assert decide_criterion(write_statement(tmp_path, criterion="M7/peer"), "laptop", "M0").status == "blocked"
    assert decide_criterion(write_statement(tmp_path, criterion="M1/decode")).status == "blocked", (
        "a speed is not a matter of opinion"
    )


@pytest.mark.parametrize(
    "changes", [{"date": "2999-01-01"}, {"by": '""'}, {"schema": "x"}, {"date": "lately"}, {"more": "1"}]
)
def test_invalid_statement_is_rejected(changes: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a statement"):
        write_statement(tmp_path, **changes)


def test_speed_without_validation_is_rejected(tmp_path: Path) -> None:
    assert "no evidence of bit-identity" in decide_criterion(record_report(tmp_path, bench_report())).reason


def test_report_outside_history_is_rejected(tmp_path: Path) -> None:
    argument = record_report(tmp_path, bench_report(), validation_report(), record=False)
    assert "not in the history" in decide_criterion(argument).reason
    assert "no history" in decide_criterion(replace(argument, history=None)).reason


def test_report_changed_after_recording_is_rejected(tmp_path: Path) -> None:
    argument = record_report(tmp_path, bench_report(), validation_report())
    faster = bench_report()
    faster["results"][0]["measure"] |= {"runs": timed_runs(1 / 300), "tokens_per_second": 300.0}
    forged = replace(argument, reports=[ReportFile(tmp_path / "0.json", faster), argument.reports[1]])
    assert "changed after it was recorded" in decide_criterion(forged).reason


@pytest.mark.parametrize("edit", ["a figure", "a line dropped", "lines swapped", "rewritten whole"])
def test_edited_history_is_rejected(edit: str, tmp_path: Path) -> None:
    argument = record_report(tmp_path, validation_report(), bench_report())
    noted = argument.history.head if argument.history else ""
    path = tmp_path / "history.jsonl"
    lines = path.read_text().splitlines()
    if edit == "a figure":
        row = json.loads(lines[1])
        row["figures"]["decode.tokens_per_second"] = 300.0
        lines[1] = json.dumps(row)
    elif edit == "a line dropped":
        del lines[0]
    elif edit == "lines swapped":
        lines.reverse()
    path.write_text("\n".join(lines) + "\n")
    if edit == "rewritten whole":
        path.unlink()
        for report in (validation_report(), bench_report()):
            append_entry(path, report["command"], report, {"faked": 1.0})
    result = decide_criterion(replace(argument, history=read(path), head=noted))
    assert result.status == "blocked" and "edited history" in result.reason


def test_latest_report_decides_instead_of_the_best(tmp_path: Path) -> None:
    slow = bench_report()
    slow["started"] = past_timestamp(hours=1)
    slow["results"][0]["measure"] |= {"runs": timed_runs(1 / 120), "tokens_per_second": 120.0}
    result = decide_criterion(record_report(tmp_path, bench_report(), slow, validation_report()))
    assert (result.status, round(result.measure["value"])) == ("fail", 120)


def test_unpinned_model_is_rejected(tmp_path: Path) -> None:
    text = replace(record_report(tmp_path, bench_report(), validation_report()), model_digest="")
    assert "--model-digest" in decide_criterion(text).reason


@pytest.mark.parametrize("milestone", [f"M{number}" for number in range(1, 9)])
def test_speed_without_evidence_does_not_pass(milestone: str) -> None:
    with Lab() as lab:
        criteria = [
            criterion for criterion in find_milestone(milestone).criteria if criterion.type != "structural"
        ]
        results = [
            r
            for criterion in criteria
            for r in evaluate(find_milestone(milestone), lab, GateInput(), only=criterion.id)
        ]
    assert {result.status for result in results} == {"blocked"}
    assert all("needs" in result.reason for result in results)


def test_gate_with_one_blocked_criterion_does_not_pass() -> None:
    report = GateReport("perf gate")
    report.results = [Result("a", "structural", "pass"), Result("b", "measured", "blocked", reason="none")]
    assert (report.verdict()["status"], report.exit_code()) == ("BLOCKED", 77)
    report.results.append(Result("c", "structural", "fail"))
    assert (report.verdict()["status"], report.exit_code()) == ("FAIL", 1)
    report.results = [Result("a", "structural", "pass")]
    assert (report.verdict()["status"], report.exit_code()) == ("PASS", 0)
    report.results = []
    assert report.exit_code() == 77


def test_wilson_lower_bound_has_the_published_values() -> None:
    assert compute_wilson_lower_bound(0, 0) == 0.0
    assert compute_wilson_lower_bound(0, 10) == pytest.approx(0.0, abs=1e-12)
    assert compute_wilson_lower_bound(8, 10) == pytest.approx(0.4902, abs=1e-4)
    assert compute_wilson_lower_bound(20, 20) == pytest.approx(20 / (20 + 1.959964**2), abs=1e-6)
