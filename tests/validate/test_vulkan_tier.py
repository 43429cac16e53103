"""The harness on a Vulkan driver: validate, trace, replay and bisect as on any tier, also with a wrong kernel."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from seen import FEW, Capture, Validate, golden_of
from spirv.spirv_edits import edit_module, encode_instruction, replace_first

from zinc_rt.backends.vulkan.device import PhysicalDevice
from zinc_rt.cli.main import main as cli
from zinc_rt.kernels.sets import SpirvKernels
from zinc_rt.kernels.spirv import table
from zinc_rt.spirv.opcodes import Opcode

VULKAN = ("--tiers", "vulkan,t_cpu")
pytestmark = pytest.mark.usefixtures("vulkan_driver")


@pytest.fixture
def wrong_swiglu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace one multiplication of the kernel by an addition."""
    own = table.KERNELS
    added = replace_first(Opcode.FMul, lambda item: encode_instruction(Opcode.FAdd, *item.operands))
    wrong = edit_module(own.module("swiglu"), added)
    planted = SpirvKernels(
        own.target,
        own.entries,
        own.pack,
        own.packed_bytes,
        own.names,
        lambda name: wrong if name == "swiglu" else own.module(name),
        expansions=own.expansions,
    )
    monkeypatch.setattr(table, "KERNELS", planted)


def record_log(model: str, log: Path) -> str:
    """The log of a run on the driver."""
    run = ["run", "--model", model, "--tier", "vulkan", "--tokens", "3,1,4", "--max-tokens", "2", "--ignore-eos"]
    assert cli(["trace", "-o", str(log), "--times", "--", *run]) == 0
    return str(log)


@pytest.mark.rest
def test_every_node_matches_the_oracle(qwen3: str, run_validate: Validate, capsys: Capture) -> None:
    seen = run_validate("--model", qwen3, *FEW, *VULKAN, "--nodes", "*")
    assert seen.exit == 0 and {result["status"] for result in seen.results} == {"pass"}
    assert seen.result("Qcur-1")["measure"]["equal_bits"] and len(seen.names_with_status("pass", "node")) > 30
    [pair] = seen.report["details"]["histograms"]["qwen3-q"]["pairs"]
    assert pair["same_bits"] and pair["logits"]["equal_bits"]
    vulkan = seen.report["details"]["devices"]["vulkan"]
    assert vulkan["identity"].keys() == {"pipeline_cache_uuid", "float_modes", "self_test"}
    assert ("vulkan (in software)" in capsys.readouterr().out) == vulkan["software"]


@pytest.mark.slow
def test_isolated_layers_match_the_oracle(qwen3: str, run_validate: Validate) -> None:
    assert run_validate("--model", qwen3, "--golden", golden_of(qwen3), *VULKAN, "--resync").exit == 0
    layers = ("--tokens", "3,1,4", "--layers", "1:2", "--input", "oracle")
    assert run_validate("--model", qwen3, *VULKAN, *layers).exit == 0


@pytest.mark.rest
def test_wrong_kernel_is_reported_with_its_node(
    qwen3: str, run_validate: Validate, wrong_swiglu: None, capsys: Capture
) -> None:
    seen = run_validate("--model", qwen3, *FEW, *VULKAN)
    bad = seen.result("first-divergent")["first_bad"]
    assert seen.exit == 1 and bad["node"] == "ffn_swiglu-0" and bad["kernels"] == ["swiglu"]
    output = capsys.readouterr().out
    assert any(line.split()[:3] == ["vulkan", "t_cpu", "FAIL"] for line in output.splitlines())
    assert "replay" in next(line for line in output.splitlines() if line.startswith("next "))


@pytest.mark.rest
def test_bisect_names_the_node_of_a_recorded_run(
    qwen3: str, tmp_path: Path, wrong_swiglu: None, capsys: Capture
) -> None:
    log = record_log(qwen3, tmp_path / "v.zlog")
    assert cli(["replay", log, "--tiers", "vulkan"]) == 0  # as it was recorded, wrong as it is
    assert cli(["replay", log, "--tiers", "t_cpu"]) == 1
    capsys.readouterr()
    assert cli(["replay", log, "--tiers", "vulkan", "--bisect", "--emit-repro", str(tmp_path / "one")]) == 1
    output = capsys.readouterr().out
    assert "SWIGLU layer 0 ffn_swiglu-0" in output and "kernels swiglu" in output
    [second] = [shlex.split(line)[1:] for line in output.splitlines() if line.startswith("repro ")]
    assert second[0] == "zinc-rt-replay" and cli(["replay", *second[1:]]) == 1  # the node alone shows it


@pytest.mark.rest
def test_oracle_replays_a_driver_recording(qwen3: str, tmp_path: Path, vulkan_driver: PhysicalDevice) -> None:
    log = record_log(qwen3, tmp_path / "v.zlog")
    assert cli(["replay", log, "--tiers", "vulkan,t_cpu", "--device", vulkan_driver.option]) == 0
