"""Random kernels with control flow: the engine and the NumPy model leave the same in every register."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from random_programs import VGPRS, input_data, output_buffer, random_program
from sim.shader_model.model_device import ModelDevice
from support import Counts

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.run import engine_device, group_runner
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.sim.shader.run.kernels import CompiledKernels


def run_program(
    device: EngineDevice | ModelDevice, code: bytes, *, wave: int, threads: int
) -> tuple[np.ndarray, list]:
    out, floats = output_buffer(threads), input_data()
    words = []
    for array, name in ((out, "out"), (floats, "data")):
        va = device.place(array, name)
        words += [va & 0xFFFFFFFF, va >> 32]
    findings = device.run(
        code, threads=(threads, 1, 1), wave=wave, user_data=(*words, threads), vgprs=VGPRS, name="random"
    )
    return out, findings


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("wave", "threads", "barriers"),
    [(32, 32, False), (32, 19, False), (64, 64, False), (32, 96, True), (64, 100, True)],
    ids=["a full wave", "part of a wave", "wave64", "three waves that meet", "waves that meet, one not full"],
)
def test_engine_and_model_agree(slow_counts: Counts, wave: int, threads: int, barriers: bool) -> None:
    levels = ("fast", "off", "full")
    for seed in range(slow_counts(1, 150)):
        code = random_program(seed + 1000 * threads, wave=wave, barriers=barriers)
        wanted, _ = run_program(ModelDevice(), code, wave=wave, threads=threads)
        assert np.ptp(wanted) > 0
        level = levels[seed % len(levels)]
        got, findings = run_program(EngineDevice(level=level), code, wave=wave, threads=threads)
        assert findings == [], findings[0].sentence
        differing = np.argwhere(got != wanted)
        assert not len(differing), f"seed {seed}, level {level}: [register, thread] {differing[:5].tolist()}"


@pytest.mark.rest
def test_quick_and_optimised_code_have_same_results_and_findings(
    slow_counts: Counts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of memory that nobody wrote, and of registers."""
    sets = [CompiledKernels(ObjectCache(tmp_path), quick=quick) for quick in (True, False)]
    rules = set()
    for seed in range(slow_counts(2, 100)):
        wave = (32, 64)[seed % 2]
        code = random_program(seed + 5, wave=wave, barriers=False)
        code = code[8 * (seed % 3) :]  # without what its first instructions write
        result = []
        for kernels in sets:
            monkeypatch.setattr(engine_device, "kernels", lambda kernels=kernels: kernels)
            device, out = EngineDevice(level="full"), output_buffer(wave)
            va = device.place(out, "out"), device.place(input_data(), "data", initialised=False)
            words = [item for at in va for item in (at & 0xFFFFFFFF, at >> 32)]
            findings = device.run(
                code, threads=(wave, 1, 1), wave=wave, user_data=(*words, wave), vgprs=VGPRS, name="random"
            )
            result.append((out.tobytes(), [(finding.rule, finding.sentence) for finding in findings]))
        assert result[0] == result[1], seed
        rules |= {rule for rule, _ in result[0][1]}
    assert rules


@pytest.fixture
def small_fuel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Waves are suspended after about 25 instructions."""
    monkeypatch.setattr(group_runner, "SLICE_FUEL", 25)
    group_runner._load_runners.cache_clear()
    yield
    group_runner._load_runners.cache_clear()


@pytest.mark.rest
@pytest.mark.parametrize(("wave", "threads"), [(32, 64), (64, 70)], ids=["two waves", "wave64, one not full"])
def test_waves_suspended_at_any_loop_iteration_resume_correctly(
    small_fuel: None, slow_counts: Counts, wave: int, threads: int
) -> None:
    for seed in range(slow_counts(1, 60)):
        code = random_program(seed + 77, wave=wave, barriers=True, size=4 if wave == 32 else 3)
        wanted, _ = run_program(ModelDevice(), code, wave=wave, threads=threads)
        got, findings = run_program(EngineDevice(level="fast"), code, wave=wave, threads=threads)
        assert findings == [], findings[0].sentence
        assert (got == wanted).all()
