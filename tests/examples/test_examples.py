"""The examples do what they say, on the tiers that need no GPU."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.answering import Answering
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.sampling import Sampling

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_example_imports_only_zinc_rt_and_documents_its_command(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    rooms = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    rooms |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert rooms <= set(sys.stdlib_module_names) | {"numpy", "zinc_rt"}
    assert f"python examples/{file.name}" in str(ast.get_docstring(tree))


@pytest.mark.parametrize("name", ["token_loop", "vision_to_action"])
def test_example_with_options_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        load_example(name).main(["--help"])
    assert left.value.code == 0 and f"python examples/{name}.py" in capsys.readouterr().out


def test_batched_prompts_match_solo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    load_example("generate")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith(("stop ", "length ")) for line in lines)


def test_stream_ends_before_stop_string(capsys: pytest.CaptureFixture[str]) -> None:
    load_example("stream")
    text, _, ended = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    assert ended == "ended by stop" and "ers" not in text and text


def test_second_chat_turn_hits_prefix_cache(capsys: pytest.CaptureFixture[str]) -> None:
    load_example("chat")
    cached = [int(line.split(": ")[-1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert cached[0] == 0 < cached[1]


def test_choices_are_sampled_independently_with_logprobs(capsys: pytest.CaptureFixture[str]) -> None:
    load_example("choices")
    lines = capsys.readouterr().out.splitlines()
    assert len({line.partition(": ")[2] for line in lines if line.startswith("choice")}) == 3
    assert sum("likeliest:" in line for line in lines) == 12


def test_guarantee_holds_under_flood_and_bill_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    load_example("tenants")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 answers for paying, while ") and int(lines[0].split()[5]) > 6
    bill = {tuple(line.split()[:2]): int(line.split()[2]) for line in lines[1:]}
    assert bill["paying", "tokens_generated"] == 2 * 16 and 100 < bill["flood", "tokens_generated"] <= 12 * 16
    ended = ("requests_finished.stop", "requests_finished.length")
    assert sum(bill.get(("flood", counter), 0) for counter in ended) == bill["flood", "requests_accepted"] == 12


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("where", [["--tier", "t_cpu"], ["--tier", "t1", "--device", "sim"]], ids=["t_cpu", "t1"])
def test_vision_to_action_matches_numpy(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert load_example("vision_to_action").main([*where, "--frames", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    movements = [line.split("  ")[-2] for line in lines if line.startswith("frame")]
    assert len(set(movements)) == 3
    assert lines[-1].startswith("PASS") and "3 of 3" in lines[-1]


def test_movement_mismatch_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_example("vision_to_action")
    wanted = module.expected_movement

    def move_slightly(*given: object) -> np.ndarray:
        movement = wanted(*given)
        return np.nextafter(movement, np.float32(2))

    monkeypatch.setattr(module, "expected_movement", move_slightly)
    assert module.main(["--frames", "1"]) == 1
    assert "DIFFERENT" in (output := capsys.readouterr().out) and output.splitlines()[-1].startswith("FAIL")


def test_unsupported_setup_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("vision_to_action", "token_loop"):
        assert load_example(name).main(["--tier", "t9"]) == 2
        assert "unknown tier 't9'" in capsys.readouterr().err


@pytest.mark.rest
def test_token_loop_samples_same_tokens_as_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_example("token_loop").main(["--tokens", "1,2,3", "--max-tokens", "5"]) == 0
    drawn = [int(line) for line in capsys.readouterr().out.split()]
    with Engine(read_gguf(GOLDEN / "qwen3-q.gguf"), CpuBackend("canonical-1")) as engine:
        asking = Answering(engine)
        asked = asking.submit([1, 2, 3], Sampling(max_tokens=5, ignore_eos=True))
        while not asked.done:
            asking.step()
    assert drawn == asked.answers[0].token_ids


@pytest.mark.rest
def test_validation_prints_a_frame(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    load_example("harness_from_python")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "PASS" and any(line.split()[:2] == ["qwen3-q/t_cpu/l_out-0", "pass"] for line in lines)
