"""Launches under a debugger that stops before every instruction: results and findings of any launch, and registers
as a trace records them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from machine_words import EXEC, code_of, s_move, sop1, sop2, sopp, v_mov
from random_programs import VGPRS, input_data, output_buffer, random_program
from support import Counts

from zinc_rt.sim.shader.checks.finding_text import WaveFinding
from zinc_rt.sim.shader.emit.slots import register_name
from zinc_rt.sim.shader.layout import VGPR_LIMIT
from zinc_rt.sim.shader.run.debugger import DebuggedLaunch, WaveDebugger, WaveStop
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.sim.shader.run.group_runner import Stop

KEYS = {register_name(key): key for key in range(VGPR_LIMIT + 129)}


@dataclass
class EveryStepListener:
    """Records the pc and all registers of wave `wave` at each stop."""

    wave: int = 0
    pcs: list[int] = field(default_factory=list)
    states: list[dict[int, np.ndarray]] = field(default_factory=list)
    undefined: list[dict[int, np.ndarray]] = field(default_factory=list)
    stops: int = 0
    debugger: WaveDebugger = field(init=False)

    def __post_init__(self) -> None:
        self.debugger = WaveDebugger(self)

    def begins(self, launch: DebuggedLaunch) -> None:
        self.keys = [*range(launch.launch.vgprs), *range(VGPR_LIMIT, VGPR_LIMIT + 129)]
        self.debugger.stop_at_step(0)

    def stopped(self, stop: WaveStop) -> bool:
        assert stop.step == self.stops
        self.stops += 1
        if stop.wave.index == self.wave:
            pairs = {key: stop.wave.register(key) for key in self.keys}
            self.pcs.append(stop.wave.pc)
            self.states.append({key: values.copy() for key, (values, _) in pairs.items()})
            self.undefined.append({key: bits.copy() for key, (_, bits) in pairs.items()})
        return True

    def reported(self, finding: WaveFinding) -> None: ...

    def ended(self, stop: Stop) -> None: ...


def run_debugged(
    device: EngineDevice, code: bytes, wave: int, threads: int
) -> tuple[bytes, list[tuple[str, str]]]:
    out = output_buffer(threads)
    va = device.place(out, "out"), device.place(input_data(), "data", initialised=False)
    words = [item for at in va for item in (at & 0xFFFFFFFF, at >> 32)]
    findings = device.run(
        code, threads=(threads, 1, 1), wave=wave, user_data=(*words, threads), vgprs=VGPRS, name="random"
    )
    return out.tobytes(), [(finding.rule, finding.sentence) for finding in findings]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("wave", "threads", "barriers"),
    [(32, 32, False), (32, 19, False), (64, 64, False), (32, 96, True), (64, 100, True)],
)
def test_results_and_findings_are_those_of_other_launches(
    slow_counts: Counts, wave: int, threads: int, barriers: bool
) -> None:
    for seed in range(slow_counts(1, 40)):
        code = random_program(seed + 77 * threads, wave=wave, barriers=barriers)
        skipped = 0 if barriers else 8 * (seed % 3)  # without what its first instructions write: findings
        level = ("full", "fast", "off")[seed % 3]
        listener = EveryStepListener()
        seen = [
            run_debugged(EngineDevice(level=level, debugger=debugger), code[skipped:], wave, threads)
            for debugger in (None, listener.debugger)
        ]
        assert listener.debugger.error is None and listener.stops > 5
        assert seen[0] == seen[1], (seed, level)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("wave", "threads", "wave_index"), [(32, 96, 1), (64, 100, 0), (32, 19, 0)])
def test_registers_at_stops_are_those_of_the_trace(
    slow_counts: Counts, wave: int, threads: int, wave_index: int
) -> None:
    for seed in range(slow_counts(1, 20)):
        code = random_program(seed + 5000, wave=wave, barriers=threads > wave)
        listener, device = EveryStepListener(wave_index), EngineDevice(trace=wave_index)
        run_debugged(device, code, wave, threads)
        run_debugged(EngineDevice(debugger=listener.debugger), code, wave, threads)
        index, last = -1, None
        compared = 0
        for step in device.steps:
            if step.pc != last or not step.name:
                index, last = index + 1, step.pc
            assert listener.pcs[index] == step.pc
            if step.name and index + 1 < len(listener.states):
                key = KEYS[step.name]
                assert np.array_equal(listener.states[index + 1][key], step.values), (seed, step)
                assert not (listener.undefined[index + 1][key] if key >= VGPR_LIMIT else 0), (seed, step)
                compared += 1
        assert compared > 10


def test_registers_are_undefined_until_they_are_written() -> None:
    code = code_of(s_move(EXEC, 5), v_mov(1, 256), sop1("s_mov_b32", 3, 0), sopp("s_nop"), sopp("s_endpgm"))
    listener = EveryStepListener()
    EngineDevice(debugger=listener.debugger).run(code, user_data=(7,), vgprs=8)
    v1 = [(undefined[1] == 0).nonzero()[0].tolist() for undefined in listener.undefined]
    assert v1 == [[], [], [0, 2], [0, 2], [0, 2]]
    v0 = [(undefined[0] == 0).sum() for undefined in listener.undefined]
    assert v0 == [32] * 5
    scalars = [[int(undefined[VGPR_LIMIT + at][0]) == 0 for at in (0, 3)] for undefined in listener.undefined]
    assert scalars == [[True, False]] * 3 + [[True, True]] * 2


def test_a_call_writes_its_return_address_before_the_next_stop() -> None:
    code = code_of(
        sop1("s_getpc_b64", 4, 0), sop2("s_add_co_u32", 4, 4, 128 + 12), sop1("s_swappc_b64", 6, 4),
        sopp("s_nop"), sopp("s_endpgm"),
    )  # fmt: skip
    listener = EveryStepListener()
    EngineDevice(level="off", debugger=listener.debugger).run(code, vgprs=8)
    assert listener.pcs[2:4] == [8, 16]
    state, undefined = listener.states[3], listener.undefined[3]
    assert int(state[VGPR_LIMIT + 6][0]) == int(state[VGPR_LIMIT + 4][0]) - 4
    assert not undefined[VGPR_LIMIT + 6].any()


class FailingListener(EveryStepListener):
    def stopped(self, stop: WaveStop) -> bool:
        super().stopped(stop)
        raise ValueError("of the listener")


def test_an_error_of_the_listener_ends_all_waves() -> None:
    listener = FailingListener()
    code = random_program(1, wave=32, barriers=True)
    run_debugged(EngineDevice(debugger=listener.debugger), code, 32, 96)
    assert listener.stops == 1 and isinstance(listener.debugger.error, ValueError)
