"""zinc-rt inspect: the file, its memory plan, its traffic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ir_text_reader import parse_text

from zinc_rt.cli.inspect import main
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.model.gguf import read_gguf

Capture = pytest.CaptureFixture[str]


def test_inspect_shows_file_plan_and_traffic(qwen35moe: str, capsys: Capture) -> None:
    assert main(["--model", qwen35moe]) == 0
    out = capsys.readouterr().out
    assert "qwen35moe, 2,769,344 B (2.64 MiB)" in out
    assert "[Ā, ā, Ă, ă, Ą, ą, … 512 in all]" in out
    assert "blk.*.ffn_gate_exps.weight" in out and "blk.0.ffn_gate_exps.weight" not in out
    assert "memory plan: 3," in out and "device_local  weight" in out
    assert "one decoded token at position 255 reads" in out and "state.ssm_delta[*]" in out


def test_inspect_shows_memory_of_context(qwen35moe: str, capsys: Capture, tmp_path: Path) -> None:
    assert main(["--model", qwen35moe, "--json", str(tmp_path / "r.json")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    context = json.loads((tmp_path / "r.json").read_text())["details"]["context"]
    (full,) = context["page_groups"]
    assert ["pages,", "full", str(full["layers"]), f"{full['bytes_per_token']:,}"] in [line[:4] for line in lines]
    assert full["page_bytes"] == 16 * full["bytes_per_token"]
    assert ["state", "row"] in [line[:2] for line in lines] and context["state_row_bytes"] > 0


def test_tensors_are_listed_on_request(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--tensors"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in read_gguf(qwen3).tensors)


def test_report_contains_table_and_details(qwen35moe: str, capsys: Capture) -> None:
    assert main(["--model", qwen35moe, "--ctx", "64", "--slots", "2", "--position", "9", "--json", "-"]) == 0
    body = json.loads(capsys.readouterr().out)
    details, gguf = body["details"], read_gguf(qwen35moe)
    assert body["ctx"] == 64 and body["model"]["architecture"] == "qwen35moe"
    assert [row["name"] for row in details["tensors"]] == list(gguf.tensors)
    weights = sum(tensor.nbytes for tensor in gguf.tensors.values())
    assert sum(row["bytes"] for row in details["tensor_classes"]) == weights
    assert details["metadata"]["qwen35moe.expert_count"] == 4
    assert details["metadata"]["tokenizer.ggml.tokens"]["count"] == 512
    heaps = {row["what"]: row for row in details["plan"]["heaps"]}
    assert heaps["weight"]["payload_bytes"] == weights
    assert sum(row["total_bytes"] for row in details["plan"]["heaps"]) == details["plan"]["total_bytes"]
    traffic = details["traffic"]
    assert traffic["position"] == 9 and 0 < traffic["read_bytes"] < weights + heaps["state"]["payload_bytes"]
    assert sum(row["read_bytes"] for row in traffic["classes"]) == traffic["read_bytes"]


def test_memory_plan_round_trips_through_json(qwen3: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "plan.json"
    assert main(["--model", qwen3, "--step-tokens", "128", "--plan-json", str(path)]) == 0
    plan = MemoryPlan.from_json(path.read_text())
    assert plan.capacity == {"tokens": 128, "sequences": 1, "rows": 1} and plan.graph == "qwen3-prefill"
    assert f"memory plan: {plan.total_bytes:,} B" in capsys.readouterr().out


def test_graph_text_can_be_parsed(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--graph"]) == 0
    graph = parse_text(capsys.readouterr().out)
    assert graph.stage == "decode" and graph.nodes[-1].label == "next_token"


def test_vocabulary_only_file_is_shown(vocabulary_only_model: str, capsys: Capture) -> None:
    assert main(["--model", vocabulary_only_model]) == 0
    out = capsys.readouterr().out
    assert "tokenizer.ggml.pre" in out and "no tensors: a vocabulary only" in out


def test_unsupported_model_is_shown_with_the_reason(
    damaged_model: Callable[[bytes, bytes], str], capsys: Capture
) -> None:
    model = damaged_model(b"qwen3", b"qwenX")
    assert main(["--model", model, "--json", "-"]) == 0
    seen = capsys.readouterr()
    assert "blk.*.ffn_up.weight" in seen.err
    assert "memory plan: none." in seen.err and "architecture 'qwenX' is not supported" in seen.err
    status = {result["id"]: result["status"] for result in json.loads(seen.out)["results"]}
    assert status == {"file": "pass", "plan": "skip"}


@pytest.mark.parametrize("option", [["--graph"], ["--plan-json", "plan.json"]])
def test_plan_option_on_vocabulary_only_file_is_an_error(
    option: list[str], vocabulary_only_model: str, capsys: Capture
) -> None:
    assert main(["--model", vocabulary_only_model, *option]) == 2
    assert "the file contains a tokenizer but no tensors, so there is nothing to plan" in capsys.readouterr().err


def test_control_characters_in_file_are_escaped(
    damaged_model: Callable[[bytes, bytes], str], capsys: Capture
) -> None:
    assert main(["--model", damaged_model(b"tiny-qwen3-q", b"tiny\x1b[31mq-q")]) == 0
    out = capsys.readouterr().out
    assert "tiny\\x1b[31mq-q" in out and "\x1b" not in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--slots", "0"], "--slots 0: expected 1 or more"),
        (["--step-tokens", "0"], "--step-tokens 0: expected 1 or more"),
        (["--position", "256"], "--position 256: expected 0 to 255"),
        (["--plan-json", "/nowhere/p.json"], "the folder /nowhere does not exist"),
        (["--plan-json", "/dev/full"], "/dev/full: cannot write: No space left on device"),
    ],
)
def test_usage_error_prints_one_line_and_exits_2(
    options: list[str], sentence: str, qwen3: str, capsys: Capture
) -> None:
    assert main(["--model", qwen3, *options]) == 2
    assert sentence in capsys.readouterr().err


def test_context_beyond_training_length_is_planned_with_warning(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--ctx", "300"]) == 0
    assert "warning   --ctx 300 exceeds the training context of 256 tokens" in capsys.readouterr().err


def test_every_golden_can_be_inspected(data_dir: Path, capsys: Capture) -> None:
    for path in sorted((data_dir / "goldens").glob("*-q.gguf")):
        assert main(["--model", str(path)]) == 0
        assert "one decoded token at position" in capsys.readouterr().out
