"""zinc-rt vulkan-test: every probe on the driver that is here, and on drivers that are not as they should be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_devices import FakeDevice, FakeVulkan

from zinc_rt.backends.vulkan import loader
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.physical_device import FEATURES
from zinc_rt.kernels.spirv.compile import PROBES as PROBE_KERNELS
from zinc_rt.kernels.spirv.compile import GlslSource, compile_source, is_available, is_stale, list_sources
from zinc_rt.probes.endings import make_error_outcome
from zinc_rt.probes.explanation import explain_outcome
from zinc_rt.probes.outcome import ProbeFailed
from zinc_rt.probes.vulkan.command import main
from zinc_rt.probes.vulkan.execution import PROBES
from zinc_rt.probes.vulkan.groups import arithmetic, order

BY_ID = {probe.id: probe for probe in PROBES}
Said = Callable[..., tuple[int, str]]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Said:
    """said(*words): the exit code and all the command said."""

    def run_main(*words: str) -> tuple[int, str]:
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
        seen = capsys.readouterr()
        return code, seen.out + seen.err

    return run_main


def use_fake_driver(monkeypatch: pytest.MonkeyPatch, *devices: FakeDevice, instance: int = 0) -> None:
    monkeypatch.setattr(loader, "load_vulkan", lambda: FakeVulkan(devices, instance))
    monkeypatch.setenv("VK_DRIVER_FILES", "/none.json")


def test_every_probe_documents_its_purpose_and_failure_causes() -> None:
    assert [probe.id for probe in PROBES] == [f"V{number:02}" for number in range(1, len(PROBES) + 1)]
    for probe in PROBES:
        assert probe.proves and probe.passes_when, probe.id
        assert probe.signatures and all(signature.cause and signature.advice for signature in probe.signatures), (
            probe.id
        )


@pytest.mark.parametrize("source", list_sources(PROBE_KERNELS), ids=lambda source: source.name)
@pytest.mark.rest(keep=1)
def test_probe_kernel_matches_its_assembled_source(source: GlslSource) -> None:
    assert not is_stale(source), "zinc-rt vulkan compile"
    if is_available():
        assert compile_source(source) == source.built.read_bytes()


@pytest.mark.rest
def test_probes_required_by_models_pass_on_this_driver(
    vulkan_driver: object, run_command: Said, tmp_path: Path, slow_counts: Any
) -> None:
    which = slow_counts("V01-V13", "V01-V15")
    code, text = run_command("-k", which, "--json", str(tmp_path / "report.json"))
    assert code == 0, text
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"]["status"] == "PASS" and report["device"]["tier"] == "vulkan"
    assert all(result["status"] in ("pass", "skip") for result in report["results"]), text
    if report["device"]["software"]:
        assert "on a software driver: not the speed of a GPU" in text
    floats = next(result for result in report["results"] if result["id"] == "V06/vulkan")
    assert floats["measure"]["claims"], "what the driver claims is in the report, beside what was measured"


def test_list_shows_every_probe_without_a_driver(run_command: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_driver(monkeypatch)
    code, text = run_command("--list")
    assert code == 0 and all(probe.id in text for probe in PROBES)


def test_missing_device_runs_nothing_and_prints_apt_command(
    run_command: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fake_driver(monkeypatch, instance=-9)
    code, text = run_command()
    assert code == 77 and "no Vulkan driver found a device (/none.json: no such file)" in text
    assert "apt install mesa-vulkan-drivers libvulkan1" in text
    code, text = run_command("--json", "-")
    report = json.loads(text[: text.rindex("}") + 1])
    assert code == 77 and report["verdict"]["status"] == "NOTHING RAN" and report["results"][0]["advice"]
    code, text = run_command("--device", "vulkan:0")
    assert code == 2 and "no Vulkan driver found a device" in text


@pytest.mark.parametrize("device_name", ["vulkan:3", "vulkan:voodoo", "sim", "vulcan"])
def test_nonexistent_device_is_a_usage_error(
    run_command: Said, monkeypatch: pytest.MonkeyPatch, device_name: str
) -> None:
    use_fake_driver(monkeypatch, FakeDevice())
    code, text = run_command("--device", device_name)
    assert code == 2 and device_name in text and "Traceback" not in text


def test_missing_feature_fails_by_name_and_dependents_are_skipped(
    run_command: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fake_driver(monkeypatch, FakeDevice(features=frozenset(FEATURES) - {"bufferDeviceAddress"}))
    code, text = run_command("-k", "V02-V06")
    assert code == 1
    assert "lacks bufferDeviceAddress (kernels reach memory by address)" in text
    assert "cause     an old driver" in text and "advice    update the driver" in text
    assert "repro     zinc-rt-vulkan-test --device vulkan:0 -k V03" in text
    assert "V06/vulkan  skip" in text and "needs V05 (because V03 failed)" in text


def test_crashing_driver_is_reported_and_contained(run_command: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_driver(monkeypatch, FakeDevice())
    monkeypatch.setattr(FakeVulkan, "vkEnumeratePhysicalDevices", lambda *_: os._exit(3))
    code, text = run_command()
    assert code == 77 and "a Vulkan driver or layer crashed its process" in text and "VK_DRIVER_FILES" in text


@pytest.mark.parametrize(
    ("result", "words"),
    [(-4, "VK_ERROR_DEVICE_LOST"), (-2, "VK_ERROR_OUT_OF_DEVICE_MEMORY"), (-3, "VK_ERROR_INITIALIZATION_FAILED")],
)
def test_driver_error_is_a_result_with_advice(result: int, words: str) -> None:
    results = explain_outcome(BY_ID["V05"], make_error_outcome(VulkanError(result, "vkQueueSubmit", "Fake 9000")))
    assert results.status == "fail" and words in results.reason and results.advice


def compute_exactly(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What a driver without faults gives."""
    with np.errstate(all="ignore"):
        rows = [a + b, a * b, a * b + x, a / b, np.sqrt(a), np.maximum(a, b), 0 * a + a, np.isnan(a)]
    return np.array(rows, np.float32)


def flush_denormals(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    result = compute_exactly(a, b, x)
    result[np.abs(result) < np.finfo(np.float32).tiny] = 0
    return result


def truncate_sums(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sums as round-towards-zero has them."""
    result = compute_exactly(a, b, x)
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) + b
    away = np.isfinite(exact) & (np.abs(result[0].astype(np.float64)) > np.abs(exact))
    result[0][away] = np.nextafter(result[0][away], np.float32(0))
    return result


def fuse_multiply_add(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    result = compute_exactly(a, b, x)
    with np.errstate(all="ignore"):
        result[arithmetic.MULTIPLY_ADD] = (a.astype(np.float64) * b + x).astype(np.float32)
    return result


@pytest.mark.parametrize(
    ("driver", "symptom"),
    [(flush_denormals, "denormals"), (truncate_sums, "rounding"), (fuse_multiply_add, "contraction")],
)
def test_driver_that_changes_float_arithmetic_is_reported_by_name(
    driver: Callable[..., np.ndarray], symptom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arithmetic, "measure_functions", lambda bench, *operands: driver(*operands))
    context: Any = type("Context", (), {"bench": None})()
    with pytest.raises(ProbeFailed) as failed:
        arithmetic.probe_float_controls.run(context)
    assert failed.value.outcome.symptom == symptom
    assert explain_outcome(BY_ID["V06"], failed.value.outcome).cause


def test_ineffective_barrier_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = np.full(order.CELLS, order.HOPS, np.uint32)
    stale[5] -= 1
    monkeypatch.setattr(order, "run_hops", lambda bench, *, barriers: stale)
    context: Any = type("Context", (), {"bench": None})()
    with pytest.raises(ProbeFailed, match="1 of 4096 cells are not 1000"):
        order.probe_barrier.run(context)
