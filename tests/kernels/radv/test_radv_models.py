"""t1:radv as a tier: a node and whole models on RADV's machine code, by packets, on the simulated device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.amd.open import open_amd
from zinc_rt.backends.spec import Opening
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.validate.command import main as validate
from zinc_rt.validate.kernel_test.command import main as kernel_test

EMBEDDED = ("qwen3-q", "gemma4-q", "gemma4moe-q", "qwen35moe-q")
# What T1's own kernels do not run, and what lies otherwise: latent attention, a scan, heads of two widths.
SHARED = ("deepseek2-q", "deepseek2lite-f32", "mamba-f32", "mamba-q", "qwen3next-q", "mistral3-q", "mixtral-q")


def load_report(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.rest
def test_node_runs_radv_kernel_and_missing_waits_are_not_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    case = "ADD T=2 N=300 values=mixed"
    assert kernel_test(["--tier", "t1:radv", "--device", "sim", "--case", case, "--json", str(report)]) == 0
    results = load_report(report)["results"]
    assert {result["measure"]["kernel"] for result in results} == {"add", "step_grids"}
    assert all(result["id"].startswith("t1:radv") for result in results)


def test_kernels_do_not_run_on_another_generation() -> None:
    opening = Opening(registry.spec("t1"), "canonical-1", "gfx1201", SimDriver(chip="gfx1100"))
    with pytest.raises(UnsupportedError, match="t1: the kernels of gfx1201 do not run on this gfx1100"):
        open_amd(opening, None)  # type: ignore[arg-type]  # nothing is opened


def assert_validates(model: Path, report: Path, device: str) -> None:
    words = ["--model", str(model), "--tiers", "t1:radv,t_cpu", "--device", device, "--json", str(report)]
    assert validate(words) == 0, load_report(report)["verdict"]
    assert any(result["tier"] == "t1:radv" for result in load_report(report)["results"])


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sim", "sim:gfx1100"])
@pytest.mark.parametrize("stem", EMBEDDED)
def test_embedded_model_matches_t_cpu_bits(stem: str, device: str, tmp_path: Path) -> None:
    assert_validates(FOLDER / f"{stem}.gguf", tmp_path / "report.json", device)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sim", "sim:gfx1100"])
@pytest.mark.parametrize("stem", SHARED)
def test_tiny_model_matches_t_cpu_bits(stem: str, device: str, tmp_path: Path, data_dir: Path) -> None:
    assert_validates(data_dir / "goldens" / f"{stem}.gguf", tmp_path / "report.json", device)
