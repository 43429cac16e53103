"""The probes' kernels: what is committed is what the sources give, and they do nothing that is undefined."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zinc_rt.kernels.assemble import Source, assemble, hash_source, is_available, list_sources
from zinc_rt.kernels.zrt import read_zrt
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.kit.shaders import GENERATION, KERNELS, explain_missing_kernels, load_kernel
from zinc_rt.probes.outcome import T1
from zinc_rt.probes.registry import PROBES, select_probes
from zinc_rt.probes.runner import ProbeRunner, RunPlan

SOURCES = list_sources(KERNELS)


def test_every_kernel_has_a_source() -> None:
    assert {path.stem for path in KERNELS.glob("*.zrt")} == {source.name for source in SOURCES}


@pytest.mark.rest(keep=11)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_kernel_matches_its_assembled_source(source: Source) -> None:
    assert load_kernel(source.name).source_hash == hash_source(source), f"zinc-rt asm {source.path}"
    if is_available():
        committed = source.path.with_suffix(".zrt").read_bytes()
        assert assemble(source) == committed, f"zinc-rt asm {source.path}"


def test_kernels_target_gfx12() -> None:
    assert {read_zrt(path.read_bytes()).target for path in KERNELS.glob("*.zrt")} == {"gfx1201"}
    assert explain_missing_kernels((GENERATION, 0, 1)) == "" and "this is gfx1151" in explain_missing_kernels(
        (11, 5, 1)
    )


@pytest.mark.parametrize("chosen", ["P33,P34", pytest.param("P32-P41,P47,P57", marks=pytest.mark.slow)])
def test_strictest_sanitizer_reports_no_findings(chosen: str) -> None:
    spec = replace(DeviceSpec(simulated=True, time_scale=0.1), sanitizer="full")
    plan = RunPlan(spec, (T1,), 1, ProbeOptions((T1,), poll_seconds=10.0), None)
    for result in ProbeRunner(plan, select_probes(PROBES, chosen), Journal(None, "sim")).run():
        assert result.status == "pass", result.reason
        assert not [note for note in result.measure.get("notes", ()) if "finding" in note], result.id
