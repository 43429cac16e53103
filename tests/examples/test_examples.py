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
from zinc_rt.engine import Engine
from zinc_rt.generate import generate
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sampling import Sampling

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_needs_nothing_beyond_zinc_rt_and_helps(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    rooms = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    rooms |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert rooms <= set(sys.stdlib_module_names) | {"numpy", "zinc_rt"}
    with pytest.raises(SystemExit) as left:
        example(file.stem).main(["--help"])
    assert left.value.code == 0 and f"python examples/{file.name}" in capsys.readouterr().out


@pytest.mark.parametrize("where", [["--tier", "t_cpu"], ["--tier", "t1", "--device", "sim"]], ids=["t_cpu", "t1"])
def test_vision_becomes_action_as_numpy_has_it(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert example("vision_to_action").main([*where, "--frames", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    movements = [line.split("  ")[-2] for line in lines if line.startswith("frame")]
    assert len(set(movements)) == 3
    assert lines[-1].startswith("PASS") and "3 of 3" in lines[-1]


def test_a_movement_that_differs_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("vision_to_action")
    wanted = module.expected

    def another(*given: object) -> np.ndarray:
        movement = wanted(*given)
        return np.nextafter(movement, np.float32(2))

    monkeypatch.setattr(module, "expected", another)
    assert module.main(["--frames", "1"]) == 1
    assert "DIFFERENT" in (said := capsys.readouterr().out) and said.splitlines()[-1].startswith("FAIL")


def test_what_cannot_run_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("vision_to_action", "token_loop"):
        assert example(name).main(["--tier", "t9"]) == 2
        assert "no tier is called 't9'" in capsys.readouterr().err


def test_the_token_loop_draws_what_run_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("token_loop").main(["--tokens", "1,2,3", "--max-tokens", "5"]) == 0
    drawn = [int(line) for line in capsys.readouterr().out.split()]
    wanted: list[int] = []
    with Engine(read_gguf(GOLDEN / "qwen3-q.gguf"), CpuBackend("canonical-1")) as engine:
        sequence = engine.open()
        logits = engine.extend(sequence, [1, 2, 3], rows="last")[0]
        generate(engine, sequence, logits, sampling=Sampling(), max_tokens=5, end_ids=(), emit=wanted.append)
    assert drawn == wanted
