"""The benchmark beside llama.cpp, run on the oracle with fakes: what it reports, blocks, and what a gate takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import native_details

from zinc_rt.cli.report import Result
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError
from zinc_rt.perf.command import main
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.offered import GateInput
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.gate.verdict import evaluate
from zinc_rt.perf.history.chain import append_entry, read
from zinc_rt.perf.native import bench as bench_native
from zinc_rt.perf.native.bench import C1, NativeBench, NativeCase, make_empty_node_result, measure_case
from zinc_rt.perf.native.llama_cpp import LlamaCpp, RepackSetting
from zinc_rt.perf.native.paired import RunConditions, make_pair_results
from zinc_rt.perf.structure.lab import Lab

CASE = NativeCase("tiny", (C1,), tokens=4, prompt=6, slots=2, oracle=1, oracle_prompt=True)
CODE = "c0de" * 16


class FakePeer(LlamaCpp):
    """Runs nothing. One setting may fail."""

    fails = ""

    def measure(self, model: Path, setting: RepackSetting, **load: int) -> dict[str, float]:
        if setting.name == self.fails:
            raise InputError("it died of SIGILL")
        return {"prefill": 100.0, "decode": 20.0 + setting.repack}

    def slots(self, model: Path, setting: RepackSetting, **load: int) -> float:
        return 50.0


def measure_model(
    tmp_path: Path, peer: LlamaCpp | None, *, rounds: int = 5, failing: str = ""
) -> dict[str, Result]:
    write_tiny(tmp_path / "m.gguf", "qwen3")
    bench = NativeBench(
        "t_cpu", 1, rounds, peer, "" if peer else "no llama.cpp: cmake missing", lambda: (40.0, 0.5)
    )
    if peer is not None:
        type(peer).fails = failing  # type: ignore[attr-defined]
    return {result.id: result for result in measure_case(CASE, tmp_path / "m.gguf", bench)}


@pytest.mark.rest
def test_every_figure_has_samples_both_settings_and_ratio(tmp_path: Path) -> None:
    result = measure_model(tmp_path, FakePeer(()))
    assert list(result) == [
        f"tiny/{C1}/prefill", f"tiny/{C1}/decode", f"tiny/{C1}/slots",
        f"tiny/{C1}/oracle-decode", f"tiny/{C1}/oracle-prefill", "tiny/memory",
    ]  # fmt: skip
    decode = result[f"tiny/{C1}/decode"]
    assert decode.status == "pass" and decode.reason == ""
    assert len(decode.measure["runs"]) == 5 and set(decode.measure["theirs"]) == {"repack", "no repack"}
    assert decode.measure["setting"] == "repack"
    assert decode.measure["ratio"] == max(decode.measure["runs"]) / 21
    assert decode.measure["bytes_a_token"] > 0 and decode.measure["oracle_ratio"] > 0
    assert len(result[f"tiny/{C1}/oracle-decode"].measure["runs"]) == 5
    assert len(result[f"tiny/{C1}/oracle-prefill"].measure["runs"]) == 1


@pytest.mark.rest
def test_failed_setting_is_dropped_and_no_settings_block_the_ratio(tmp_path: Path) -> None:
    one = measure_model(tmp_path, FakePeer(()), failing="repack")[f"tiny/{C1}/decode"]
    assert one.status == "pass" and one.measure["setting"] == "no repack"
    none = measure_model(tmp_path, None)[f"tiny/{C1}/decode"]
    assert none.status == "blocked" and "cmake missing" in none.reason and "ratio" not in none.measure


def test_tier_that_cannot_run_the_model_is_blocked_with_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject_build(*_: object) -> None:
        raise InputError("no kernel for MATMUL")

    monkeypatch.setattr(bench_native, "_warm_up", reject_build)
    (only,) = measure_model(tmp_path, None).values()
    assert only.status == "blocked" and "no kernel for MATMUL" in only.reason


def test_empty_node_takes_under_half_a_microsecond_on_quiet_machine() -> None:
    assert [make_empty_node_result(us, 2, 1.0).status for us in (0.3, 0.6, None)] == ["pass", "fail", "blocked"]
    assert [make_empty_node_result(us, 2, 7.0).status for us in (0.3, 0.6)] == ["pass", "blocked"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "gpt-5"], "unknown benchmark model"),
        (["--rounds", "0"], "--rounds 0"),
        (["--threads", "0"], "--threads 0"),
    ],
)
def test_invalid_option_is_rejected_before_anything_runs(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["native", *words]) == 2
    assert message in capsys.readouterr().err


# --- as evidence ---


def make_report(**change: Any) -> dict[str, Any]:
    """The report of a run on an idle machine: 1.5 times llama.cpp's speed in Q8_0."""
    measure = make_pair_results([30.0, 30.0, 29.0, 30.0, 30.0], {"repack": [20.0] * 5, "no repack": [18.0] * 5})
    measure["conditions"] = {"read_gbs": [40.0] * 6, "load": [1.0] * 6, "threads": 2}
    settings = dict.fromkeys(("lm_head_rows", "max_decode_tokens", "decode_topk"), 0) | {"gemma4_attn_scale": 0.0}
    result = {"id": "qwen3-0.6b-q8_0/canonical-1-q8/decode", "tier": "t_cpu_native", "status": "pass"}
    return {
        "schema": "zinc-rt-report/1",
        "command": "perf native",
        "started": "2026-11-22T10:00:00+00:00",
        "device": {"name": "EPYC", "simulated": False},
        "shortcuts": [],
        "details": {"code": CODE, "settings": settings},
        "results": [{**result, "measure": measure, **change}],
    }


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(device="cpu") as opened:
        yield opened


def decide_criterion(lab: Lab, folder: Path, content: dict[str, Any], *, record: bool = True) -> Result:
    history = folder / "history.jsonl"
    history.touch()
    content["details"] |= native_details(content["results"][0]["measure"].get("theirs", {}))
    if record:
        append_entry(history, "perf native", content, {})
    argument = GateInput([ReportFile(folder / "n.json", content)], (), read(history), "", read(history).head, CODE)
    (result,) = evaluate(find_milestone("cpu"), lab, argument, only="q8-decode")
    return result


def test_quiet_run_with_required_ratio_passes_gate(lab: Lab, tmp_path: Path) -> None:
    result = decide_criterion(lab, tmp_path, make_report())
    assert (result.status, result.measure["value"]) == ("pass", 1.5)


def test_slower_run_fails_gate(lab: Lab, tmp_path: Path) -> None:
    slow = make_report()
    slow["results"][0]["measure"] |= make_pair_results([20.0] * 5, {"repack": [20.0] * 5})
    assert decide_criterion(lab, tmp_path, slow).status == "fail"


def corrupt_report(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(make_report()))
    result = content["results"][0]
    match name:
        case "noise":
            result["measure"]["conditions"]["read_gbs"][2] = 30.0
        case "load":
            result["measure"]["conditions"]["load"][2] = 5.0
        case "rounds":
            result["measure"] |= make_pair_results([30.0] * 3, {"repack": [20.0] * 3})
        case "blocked":
            result |= {"status": "blocked", "reason": "no llama.cpp"}
        case "summary":
            result["measure"]["ratio"] = 2.0
        case "code":
            content["details"]["code"] = "other"
        case "clamp":
            content["shortcuts"] = ["LM head capped"]
        case "tier":
            result["tier"] = "t_cpu"
        case "peer":
            result["measure"]["theirs"] = {}
        case "samples":
            del result["measure"]["runs"]
    return content


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("noise", "read bandwidth moved by 25%"),
        ("load", "load average 5.00"),
        ("rounds", "3 rounds"),
        ("blocked", "not judged: no llama.cpp"),
        ("summary", "the summary says 2.0, its own samples 1.5"),
        ("code", "stale"),
        ("clamp", "LM head capped"),
        ("tier", "ran on t_cpu, expected t_cpu_native"),
        ("peer", "no llama.cpp in this run"),
        ("samples", "cannot be read"),
    ],
)
def test_inadmissible_report_blocks_gate(lab: Lab, tmp_path: Path, name: str, reason: str) -> None:
    result = decide_criterion(lab, tmp_path, corrupt_report(name))
    assert result.status == "blocked" and reason in result.reason


def test_report_missing_from_history_blocks_the_gate(lab: Lab, tmp_path: Path) -> None:
    result = decide_criterion(lab, tmp_path, make_report(), record=False)
    assert result.status == "blocked" and "not in the history" in result.reason


def test_conditions_keep_their_original_values() -> None:
    conditions = RunConditions([40.0], [1.0], 2)
    assert replace(conditions, load=[9.0]).explain_noise() and not conditions.explain_noise()
