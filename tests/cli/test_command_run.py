"""zinc-rt run, as a user sees it."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted_kernel import UNINITIALISED, FakeSanitizer, flip_bit, plant_kernel, plant_store_out_of_bounds
from vulkan_driver import require_driver

from zinc_rt.backends import registry
from zinc_rt.backends.amd.kmd_side import KfdSide, UserqSide
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.spec import Availability, Host
from zinc_rt.cli import run
from zinc_rt.cli.run import main
from zinc_rt.engine import graph_store
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Runner
from zinc_rt.engine.variants import Variants
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer

Capture = pytest.CaptureFixture[str]


def greedy_tokens(model: str, prompt: list[int], count: int) -> list[int]:
    """The simplest method: recompute the whole text for every token."""
    ids = list(prompt)
    with Engine(read_gguf(model), CpuBackend("canonical-1")) as engine:
        for _ in range(count):
            ids.append(int(engine.forward(ids, rows="last")[0].argmax()))
    return ids[len(prompt) :]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("pair", list_embedded_pairs(), ids=lambda pair: pair.model.stem)
def test_greedy_tokens_match_full_recomputation(pair, tmp_path: Path, capsys: Capture) -> None:
    model, report = str(pair.model), tmp_path / "report.json"
    assert (
        main(["--model", model, "--tokens", "5,6,7", "--max-tokens", "6", "--ignore-eos", "--json", str(report)])
        == 0
    )
    details = json.loads(report.read_text())["details"]
    assert details["generated_ids"] == greedy_tokens(model, [5, 6, 7], 6)
    assert details["stopped"] == "max_tokens"
    assert capsys.readouterr().out.rstrip("\n") == details["text"].rstrip("\n")


def native_tier() -> Availability:
    return registry.spec("t_cpu_native").probe(Host(1))


def test_report_names_the_compute_device(qwen3: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["--model", qwen3, "--prompt", "the", "--max-tokens", "2", "--tier", "t_cpu", "--json", str(report)]
    assert main(words) == 0
    body = json.loads(report.read_text())
    assert body["schema"] == "zinc-rt-report/1" and body["command"] == "run"
    assert body["ordering"] == "canonical-1" and body["ctx"] == 256 and body["shortcuts"] == []
    assert body["device"]["tier"] == "t_cpu" and body["device"]["simulated"] is False
    assert body["model"]["architecture"] == "qwen3" and len(body["model"]["digest"]) == 64
    (program,) = [program for program in body["details"]["programs"] if program["stage"] == "decode"]
    assert body["direct_compute_ops"] == program["nodes"] == program["of"] > 10
    assert body["model_execution"].startswith(f"t_cpu: {program['of']} of {program['of']} nodes of ")
    assert body["details"]["sampled"] == {"device": 2, "host": 0}
    assert body["direct_compute_kind"] == "numpy-reference"
    assert body["verdict"] == {"status": "PASS", "exit": 0, "counts": {"pass": 1}}


def test_stderr_names_tier_and_marks_oracle_speed_as_unrepresentative(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--prompt", "the", "--max-tokens", "2", "--tier", "t_cpu"]) == 0
    words = capsys.readouterr().err
    assert "tier      t_cpu: asked for" in words
    assert "T-CPU oracle, not a performance figure" in words
    assert "stopped   after --max-tokens 2" in words
    assert "sampled   2 by the device\n" in words


def test_native_tier_reports_prefill_and_decode_speed_separately(
    qwen3: str, tmp_path: Path, capsys: Capture
) -> None:
    if not native_tier().usable:
        pytest.skip(native_tier().why)
    report = tmp_path / "report.json"
    words = ["--model", qwen3, "--tokens", "1,2,3", "--max-tokens", "4", "--ignore-eos", "--json", str(report)]
    assert main(words) == 0
    errors = capsys.readouterr().err
    assert (
        "tier      t_cpu_native: not t2: no AMD GPU was found; not t1: no AMD GPU was found; machine code"
        in errors
    )
    assert re.search(r"\ngenerated 4 tokens in \S+ s, \S+ tokens/s \(t_cpu_native, .*canonical-1\)\n", errors)
    body = json.loads(report.read_text())
    measure = body["results"][0]["measure"]
    assert (measure["prompt_tokens"], measure["tokens"], measure["steps"]) == (3, 4, 3)
    assert measure["prompt_tokens_per_second"] == 3 / measure["prompt_seconds"]
    assert measure["tokens_per_second"] == 3 / measure["generate_seconds"]
    assert body["details"]["memory"]["resident_bytes"] > 1 << 20


def test_load_and_build_time_is_excluded_from_speed(
    qwen3: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, report = Variants._build, tmp_path / "report.json"
    seconds = 0.0

    def slow_build(*asked: Any) -> Any:
        nonlocal seconds
        seconds += 100
        return build(*asked)

    monkeypatch.setattr(Variants, "_build", slow_build)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: seconds))
    assert main(["--model", qwen3, "--tokens", "1,2,3", "--max-tokens", "3", "--json", str(report)]) == 0
    measure = json.loads(report.read_text())["results"][0]["measure"]
    assert measure["load_seconds"] == 200  # a graph for the prompt, one for what follows
    assert measure["prompt_seconds"] == measure["generate_seconds"] == 0
    errors = capsys.readouterr().err
    assert "\nload      " in errors and re.search(r"\nprompt    3 tokens in \S+ s, \S+ tokens/s\n", errors)


def test_json_on_stdout_moves_text_to_stderr(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--prompt", "the", "--max-tokens", "2", "--json", "-"]) == 0
    seen = capsys.readouterr()
    text = json.loads(seen.out)["details"]["text"]
    assert text and text in seen.err


def test_seed_determines_sampled_tokens(qwen3: str, capsys: Capture) -> None:
    def generate_with_seed(seed: int) -> str:
        options = ["--temperature", "2", "--top-k", "200", "--seed", str(seed), "--max-tokens", "12"]
        assert main(["--model", qwen3, "--prompt", "the", *options]) == 0
        return capsys.readouterr().out

    assert generate_with_seed(1) == generate_with_seed(1) != generate_with_seed((1 << 32) + 1)


def test_end_token_stops_generation_and_is_hidden(
    qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = greedy_tokens(qwen3, [5, 6, 7], 4)
    end = ids[2]
    assert end not in ids[:2]
    plain = Tokenizer.from_metadata

    def with_end_token(metadata):
        tokenizer = plain(metadata)
        tokenizer.eog_ids = frozenset({end})
        return tokenizer

    monkeypatch.setattr(Tokenizer, "from_metadata", with_end_token)
    assert main(["--model", qwen3, "--tokens", "5,6,7", "--max-tokens", "4", "--json", "-"]) == 0
    details = json.loads(capsys.readouterr().out)["details"]
    assert details["generated_ids"] == ids[:3] and details["stopped"] == "end"
    assert details["text"] == plain(read_gguf(qwen3).metadata).decode(ids[:2])
    assert main(["--model", qwen3, "--tokens", "5,6,7", "--max-tokens", "4", "--ignore-eos", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["details"]["generated_ids"] == ids


def test_generation_stops_at_context_end(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--tokens", "5,6,7", "--ctx", "5", "--json", "-"]) == 0
    seen = capsys.readouterr()
    details = json.loads(seen.out)["details"]
    assert details["stopped"] == "context"
    assert details["generated_ids"] == greedy_tokens(qwen3, [5, 6, 7], 3)  # the last needs no place of its own
    assert "the context of 5 tokens is full" in seen.err


def test_context_beyond_training_length_warns(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--tokens", "5,6", "--ctx", "300", "--max-tokens", "1"]) == 0
    assert "warning   --ctx 300 exceeds the training context of 256 tokens" in capsys.readouterr().err


def test_step_timeout_prints_one_line(qwen3: str, capsys: Capture) -> None:
    tokens = ",".join(["5"] * 200)
    assert main(["--model", qwen3, "--tokens", tokens, "--timeout", "0.0001"]) == 1
    seen = capsys.readouterr().err
    assert "fence 1 not reached within 0.0001 s" in seen and "Traceback" not in seen


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_every_decode_submission_takes_the_fast_path(
    tier: str, qwen3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of warm-up: the prompt, the first decoded token, one more."""
    flushes: list[int] = []
    for side in (KfdSide, UserqSide):

        def counted_flush(self: Any, real: Callable[[Any], Any] = side.flush_hdp) -> Any:
            flushes.append(1)
            return real(self)

        monkeypatch.setattr(side, "flush_hdp", counted_flush)

    def submissions_of(steps: int) -> dict[str, int]:
        path = tmp_path / f"{steps}.json"
        tokens = ["--tokens", "5,6,7", "--max-tokens", str(steps), "--ignore-eos", "--json", str(path)]
        assert main(["--model", qwen3, "--tier", tier, "--device", "sim", *tokens]) == 0
        submission: dict[str, int] = json.loads(path.read_text())["details"]["submission"]
        submission["flushes"] = len(flushes)
        flushes.clear()
        return submission

    warm, whole = submissions_of(3), submissions_of(20)
    assert whole["steps"] - warm["steps"] == whole["fast"] - warm["fast"] == 17
    assert whole["careful"] == warm["careful"] <= 3 and whole["flushes"] == warm["flushes"]
    assert whole["host_writes"] == whole["steps"] == whole["doorbells"] == 20


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native", "vulkan", "t1", "t2"])
@pytest.mark.parametrize("temperature", [True, False], ids=["drawn", "greedy"])
def test_token_costs_one_submission_and_one_wait(tier: str, temperature: bool, qwen3: str, tmp_path: Path) -> None:
    if tier == "vulkan":
        require_driver()
    path, device = tmp_path / "report.json", ["--device", "sim"] if tier in ("t1", "t2") else []
    words = ["--tier", tier, *device, "--tokens", "1,2,3", "--max-tokens", "8", "--ignore-eos"]
    penalties = ["--presence-penalty", "0.4", "--frequency-penalty", "0.3", "--repetition-penalty", "1.2"]
    words += ["--temperature", "0.9", *penalties, "--logprobs", "3"] if temperature else []
    assert main(["--model", qwen3, *words, "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    measure, details = report["results"][0]["measure"], report["details"]
    assert measure["tokens"] == 8
    assert measure["submissions_per_token"] == measure["waits_per_token"] == 1
    assert details["submission"]["steps"] == details["submission"]["waits"] == 8
    logprobs = details.get("logprobs", [])
    assert len(logprobs) == 8 * temperature and all(len(logprob["top"]) == 3 for logprob in logprobs)
    assert [logprob["token_id"] for logprob in logprobs] == details["generated_ids"] * temperature


def test_clamps_are_printed_and_reported(qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_RT_MAX_DECODE_TOKENS", "2")
    monkeypatch.setenv("ZINC_RT_LM_HEAD_ROWS", "100")
    assert main(["--model", qwen3, "--tokens", "5,6,7", "--json", "-"]) == 0
    seen = capsys.readouterr()
    body = json.loads(seen.out)
    assert len(body["shortcuts"]) == 2 and all(line in seen.err for line in body["shortcuts"])
    assert len(body["details"]["generated_ids"]) == 2 and max(body["details"]["generated_ids"]) < 100
    assert "ZINC_RT_MAX_DECODE_TOKENS clamps --max-tokens 128" in seen.err


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_chat_applies_the_template(qwen3: str, capsys: Capture, system: str | None) -> None:
    extra = ["--system", system] if system else []
    assert (
        main(["--model", qwen3, "--chat", "--prompt", "the cat", "--max-tokens", "1", *extra, "--json", "-"]) == 0
    )
    tokenizer = Tokenizer.from_metadata(read_gguf(qwen3).metadata)
    ids = json.loads(capsys.readouterr().out)["details"]["prompt_ids"]
    before = "<|im_start|>system\nBe brief.<|im_end|>\n" if system else ""
    assert tokenizer.decode(ids).startswith(before + "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant")
    assert tokenizer.id_of("<|im_start|>") in ids


def test_prompt_can_come_from_stdin(qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n")))
    assert main(["--model", qwen3, "--prompt", "-", "--max-tokens", "1", "--json", "-"]) == 0
    ids = json.loads(capsys.readouterr().out)["details"]["prompt_ids"]
    assert Tokenizer.from_metadata(read_gguf(qwen3).metadata).decode(ids) == "the cat\n"


def test_ids_are_printed_without_a_tokenizer(
    damaged_model: Callable[[bytes, bytes], str], capsys: Capture
) -> None:
    model = damaged_model(b"tokenizer.ggml.model", b"tokenizer.ggml.xxxxx")
    assert main(["--model", model, "--tokens", "5,6,7", "--max-tokens", "3"]) == 0
    seen = capsys.readouterr()
    assert seen.out == ",".join(map(str, greedy_tokens(model, [5, 6, 7], 3))) + "\n"
    assert "tokenizer none, ids are printed" in seen.err
    assert main(["--model", model, "--prompt", "the"]) == 2


def test_validate_prints_location_of_largest_difference(
    qwen35moe: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZINC_BATCHED_PREFILL", "validate")
    assert main(["--model", qwen35moe, "--tokens", "5,6,7", "--max-tokens", "1", "--json", "-"]) == 0
    seen = capsys.readouterr()
    assert "prefill validate: n_tokens=3 max_abs_diff=0 at idx=" in seen.err
    results = {result["id"]: result for result in json.loads(seen.out)["results"]}
    assert results["prefill"]["status"] == "pass" and results["prefill"]["limit"] == {"max_abs_diff": 0.0}


@pytest.mark.rest
def test_validate_above_tolerance_exits_1(qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_BATCHED_PREFILL", "validate")
    step = Engine.step

    def drifting_step(self, batch, rows, **options):
        batch = list(batch)
        logits = step(self, batch, rows, **options)
        return logits + np.float32(0.5) if len(batch[0][1]) > 1 and len(rows) else logits

    monkeypatch.setattr(Engine, "step", drifting_step)
    assert main(["--model", qwen3, "--tokens", "5,6,7", "--max-tokens", "1"]) == 1
    assert "tolerance=0 exceeded" in capsys.readouterr().err


def test_ctrl_c_keeps_generated_text_and_exits_130(
    qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect, decoded = Runner.collect, iter(range(100))

    def interrupted_collect(self, handle, *seconds):
        if handle.counts[0] == 1 and next(decoded) == 3:
            raise KeyboardInterrupt
        return collect(self, handle, *seconds)

    monkeypatch.setattr(Runner, "collect", interrupted_collect)
    assert main(["--model", qwen3, "--tokens", "5,6,7"]) == 130
    seen = capsys.readouterr()
    tokenizer = Tokenizer.from_metadata(read_gguf(qwen3).metadata)
    monkeypatch.undo()
    assert seen.out == tokenizer.decode(greedy_tokens(qwen3, [5, 6, 7], 4)) + "\n"
    assert seen.err.endswith("zinc-rt run: interrupted\n")


def test_probe_prints_status_reason_and_advice_of_every_tier(capsys: Capture) -> None:
    assert main(["--probe-tier"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["t2", "no", "no", "AMD", "GPU", "was"]
    assert any(line.split()[:5] == ["t_cpu", "usable", "the", "NumPy", "oracle,"] for line in lines)
    assert lines[-1] == f"auto selects {'t_cpu_native' if native_tier().usable else 't_cpu'}"


def test_probe_of_one_unusable_tier_exits_77(capsys: Capture) -> None:
    assert main(["--probe-tier", "--tier", "t1", "--json", "-"]) == 77
    body = json.loads(capsys.readouterr().out)
    assert [result["status"] for result in body["results"]] == ["blocked"]
    assert body["results"][0]["advice"].startswith("zinc-rt devices lists")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "no model was given"),
        (["--model", "nowhere.gguf", "--prompt", "x"], "nowhere.gguf: no such file"),
        (["--model", ".", "--prompt", "x"], "not a regular file"),
        (["--model", "MODEL"], "no prompt was given"),
        (["--model", "MODEL", "--prompt", ""], "the prompt has no tokens"),
        (["--model", "MODEL", "--tokens", "1,512"], "token id 512 is outside the vocabulary of 512"),
        (["--model", "MODEL", "--tokens=-1"], "token id -1 is outside the vocabulary"),
        (["--model", "MODEL", "--tokens", "1,2,3", "--ctx", "2"], "do not fit the context of 2"),
        (
            ["--model", "MODEL", "--prompt", "x", "--timeout", "0"],
            "--timeout 0: expected more than 0 seconds",
        ),
        (["--model", "MODEL", "--prompt", "x", "--tier", "t2"], "tier t2: no AMD GPU was found"),
        (["--model", "MODEL", "--prompt", "x", "--tier", "t9"], "unknown tier 't9'"),
        (
            ["--model", "MODEL", "--prompt", "x", "--tier", "t1", "--device", "cpu"],
            "--device cpu supports t_cpu_native, t_cpu, vulkan, not t1",
        ),
        (["--model", "MODEL", "--prompt", "x", "--threads", "0"], "--threads 0: expected 1 or more"),
        (["--model", "MODEL", "--prompt", "x", "--max-tokens", "0"], "--max-tokens 0: expected 1 or more"),
        (["--model", "MODEL", "--prompt", "x", "--temperature", "-1"], "--temperature -1.0: expected 0 or more"),
        (["--model", "MODEL", "--prompt", "x", "--temperature", "nan"], "--temperature nan: expected 0 or more"),
        (["--model", "MODEL", "--prompt", "x", "--top-p", "0"], "--top-p 0.0: expected more than 0"),
        (["--model", "MODEL", "--prompt", "x", "--min-p", "1.5"], "--min-p 1.5: expected 0 (off) to 1"),
        (["--model", "MODEL", "--prompt", "x", "--seed", "-1"], "--seed -1: expected 0 to 2^64 - 1"),
        (
            ["--model", "MODEL", "--prompt", "x", "--top-k", "-1"],
            "--top-k -1: expected 0 (off) or a positive",
        ),
        (["--model", "MODEL", "--prompt", "x", "--system", "y"], "--system needs --chat"),
        (["--model", "MODEL", "--tokens", "1", "--chat"], "--chat needs --prompt"),
        (["--model", "MODEL", "--prompt", "x", "--json", "/nowhere/r.json"], "the folder /nowhere does not exist"),
        (["--probe-tier", "--tier", "t9"], "unknown tier 't9'"),
    ],
)
def test_usage_error_prints_one_line_and_exits_2(
    arguments: list[str], sentence: str, qwen3: str, capsys: Capture
) -> None:
    assert main([qwen3 if word == "MODEL" else word for word in arguments]) == 2
    seen = capsys.readouterr()
    assert sentence in seen.err and "Traceback" not in seen.err
    assert seen.out == ""


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ZINC_BATCHED_PREFILL", "maybe", "ZINC_BATCHED_PREFILL='maybe': expected off, on or validate"),
        ("ZINC_RT_MAX_DECODE_TOKENS", "-1", "expected a count"),
        ("ZINC_RT_TIER", "t2", "tier t2: no AMD GPU was found"),
        ("ZINC_RT_FAST_POOL", "1", "but this version ignores it"),
        ("ZINC_RT_SPEED", "1", "ZINC_RT_SPEED is not a setting"),
    ],
)
def test_invalid_setting_is_an_error(
    name: str, value: str, sentence: str, qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["--model", qwen3, "--tokens", "1"]) == 2
    assert sentence in capsys.readouterr().err


def test_unsupported_file_is_reported(
    damaged_model: Callable[[bytes, bytes], str], vocabulary_only_model: str, capsys: Capture
) -> None:
    for model, sentence in (
        (damaged_model(b"qwen3", b"qwenX"), "architecture 'qwenX' is not supported by this version"),
        (vocabulary_only_model, "the file contains a tokenizer but no tensors"),
    ):
        assert main(["--model", model, "--tokens", "1"]) == 2
        assert sentence in capsys.readouterr().err


def test_missing_tensor_is_named(damaged_model: Callable[[bytes, bytes], str], capsys: Capture) -> None:
    assert main(["--model", damaged_model(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"), "--tokens", "1"]) == 2
    assert "tensor blk.1.ffn_up.weight is missing" in capsys.readouterr().err


def test_unknown_quantisation_type_is_named(damaged_model: Callable[[bytes, bytes], str], capsys: Capture) -> None:
    entry = b"output_norm.weight" + struct.pack("<IQI", 1, 256, 0)
    model = damaged_model(entry, entry[:-4] + struct.pack("<I", 200))
    assert main(["--model", model, "--tokens", "1"]) == 2
    words = capsys.readouterr().err
    assert "200" in words and "output_norm.weight" in words


def test_finding_fails_the_run(
    qwen3: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuBackend, "instrument", FakeSanitizer(UNINITIALISED))
    report = tmp_path / "report.json"
    words = ["--model", qwen3, "--tokens", "1,2", "--max-tokens", "2", "--tier", "t_cpu", "--json", str(report)]
    assert main(words) == 1
    *_, verdict, advice = capsys.readouterr().err.splitlines()
    assert verdict.startswith("FAIL      the simulated device reported 1 error, the first: uninitialised-memory: ")
    assert advice == f"next      zinc-rt validate --model {qwen3} --tiers t_cpu"
    body = json.loads(report.read_text())
    assert body["verdict"] == {"status": "FAIL", "exit": 1, "counts": {"pass": 1, "fail": 1}}
    assert body["details"]["findings"] == [UNINITIALISED.text] and len(body["details"]["generated_ids"]) == 2
    (result,) = [result for result in body["results"] if result["status"] == "fail"]
    assert result["id"] == "sanitizer" and result["measure"] == {"findings": 1}


@pytest.mark.rest
def test_planted_store_and_page_fault_exit_1(
    qwen3: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where hang reports go
    words = ["--model", qwen3, "--tokens", "1,2", "--max-tokens", "2", "--tier", "t1", "--device", "sim"]
    with monkeypatch.context() as planted:
        plant_store_out_of_bounds(planted)
        assert main(words) == 1
    assert re.search(r"\nFAIL .*out-of-bounds: .*argmax\.s:\d+", capsys.readouterr().err)
    with monkeypatch.context() as planted:  # 16 MiB further on nothing is mapped
        plant_kernel(planted, "argmax", lambda zrt: flip_bit(zrt, "global_store_b32", 72 + 22))
        assert main(words) == 1
    assert "page fault" in capsys.readouterr().err


@pytest.mark.rest
def test_refused_stored_graph_is_planned_again_and_reported(
    qwen3: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_store, "cache_folder", lambda: tmp_path)
    report = tmp_path / "report.json"
    words = ["--model", qwen3, "--tokens", "1,2", "--max-tokens", "2", "--tier", "t1", "--device", "sim"]

    def graph_counts() -> tuple[str, dict[str, Any], list[int]]:
        assert main([*words, "--json", str(report)]) == 0
        (line,) = re.findall(r"^graphs +(.*), in \d+ ms$", capsys.readouterr().err, re.M)
        details = json.loads(report.read_text())["details"]
        return line, details["graphs"], details["generated_ids"]

    line, _, wanted = graph_counts()
    assert line == "0 read from the cache, 2 planned"
    one, *_, other = (tmp_path / "graphs").glob("*.zro")
    one.write_bytes(other.read_bytes())  # whole, and of another name
    line, graphs, ids = graph_counts()
    assert re.fullmatch(r"\d read from the cache, \d planned, 1 refused \(\w{16}: it was stored for .*\)", line)
    assert graphs["read"] + graphs["planned"] == 2 and len(graphs["refused"]) == 1 and ids == wanted
    line, graphs, ids = graph_counts()
    assert line == "2 read from the cache, 0 planned" and graphs["refused"] == [] and ids == wanted
