"""Every instruction of the gfx12 subset on the engine and on the NumPy model: the same registers, masks and SCC.

The kernels are in instruction_kernels.npz, assembled from instruction_cases.py; trials differ in data and EXEC.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from instruction_cases import all_kernels
from instruction_inputs import random_inputs
from instruction_kernels import (
    COMMAND,
    DATA_BYTES,
    EXEC,
    FIRST_RESULT,
    INPUTS,
    LDS_BYTES,
    REGION_BYTES,
    SCRATCH_BYTES,
    InstructionCase,
    InstructionKernel,
    assemble_text,
    kernel_assembly,
    read_kernels,
)
from sim.shader_model.model_device import ModelDevice
from support import Counts

from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
KERNELS = {kernel.name: (kernel, code) for kernel, code in read_kernels()}
REGISTERS = 128
# Relative to the largest term, of sums of 8-bit floats: nothing says how they are added.
TOLERANCE = {"close": 2.0**-20, "close16": 2.0**-8, "wide": 2.0**-18, "wide16": 2.0**-7, "widebf16": 2.0**-5}


def run_kernel(
    device: ModelDevice | EngineDevice, kernel: InstructionKernel, code: bytes, data: Array, mode: int = 0xF0
) -> tuple[Array, Array]:
    """uint32 [trials, register, lane] and uint8 [trials, bytes]: registers and memory that the kernel left."""
    trials = len(data)
    out = np.zeros((trials, REGISTERS // 4, kernel.wave, 4), np.uint32)
    source = np.random.default_rng(len(code)).integers(0, 256, DATA_BYTES, np.uint8)
    region = np.zeros((trials, REGION_BYTES if kernel.memory else 16), np.uint8)
    placed = [device.place(array, name) for name, array in (("in", data), ("out", out))]
    placed += [device.place(array, name) for name, array in (("source", source), ("region", region))]
    words = [part for va in placed for part in (va & 0xFFFFFFFF, va >> 32)]
    findings = device.run(
        code,
        groups=(trials, 1, 1),
        threads=(kernel.wave, 1, 1),
        wave=kernel.wave,
        user_data=words,
        lds_bytes=LDS_BYTES if kernel.memory else 0,
        scratch_bytes=SCRATCH_BYTES if kernel.memory else 0,
        mode=mode,
        name=kernel.name,
    )
    stopped = [
        finding.sentence
        for finding in findings
        if finding.rule in ("illegal", "out-of-fuel", "barrier-stuck", "halt")
    ]
    assert not stopped, "\n".join(stopped)
    return out.transpose(0, 1, 3, 2).reshape(trials, REGISTERS, kernel.wave), region


@dataclass(frozen=True)
class InstructionDifference:
    case: InstructionCase
    register: int
    trial: int
    lanes: tuple[int, ...]
    got: tuple[int, ...]
    wanted: tuple[int, ...]

    def __str__(self) -> str:
        shown = ", ".join(
            f"lane {lane}: got {got:#010x}, expected {want:#010x}"
            for lane, got, want in list(zip(self.lanes, self.got, self.wanted, strict=True))[:3]
        )
        return f"{self.case.text} (v{self.register}, trial {self.trial}, {len(self.lanes)} lanes): {shown}"


def equal_lanes(kind: str, got: Array, want: Array) -> Array:
    """Compare lane by lane: bit for bit (NaNs are equal) or within the tolerance of the kind."""
    same = got == want
    if kind in ("f32", "close", "wide"):
        a, b = got.view(np.float32), want.view(np.float32)
        same = same | np.isnan(a) & np.isnan(b)
        if kind != "f32":
            same |= np.abs(a.astype(float) - b) <= TOLERANCE[kind] * np.maximum(np.abs(b), 16.0)
        return same
    if kind in ("f16", "f16x2", "close16", "wide16", "widebf16"):
        same = np.ones(got.shape, bool)
        for shift in (0, 16):
            a, b = ((x >> np.uint32(shift)).astype(np.uint16) for x in (got, want))
            if kind == "widebf16":
                x, y = ((z.astype(np.uint32) << np.uint32(16)).view(np.float32) for z in (a, b))
            else:
                x, y = a.view(np.float16), b.view(np.float16)
            half = (a == b) | np.isnan(x) & np.isnan(y)
            if kind in TOLERANCE:
                half |= np.abs(x.astype(float) - y) <= TOLERANCE[kind] * np.maximum(np.abs(y.astype(float)), 16.0)
            same &= half
        return same
    return same


def equal_pairs(got: Array, want: Array) -> Array:
    """Pairs [2, lanes] as float64."""
    a, b = (x[0].astype(np.uint64) | x[1].astype(np.uint64) << np.uint64(32) for x in (got, want))
    return (a == b) | np.isnan(a.view(float)) & np.isnan(b.view(float))


def list_differences(kernel: InstructionKernel, got: Array, want: Array) -> list[InstructionDifference]:
    result = []
    with np.errstate(all="ignore"):
        for case in kernel.cases:
            for trial in range(len(got)):
                bad = _bad_lanes(case, got[trial], want[trial])
                if bad is not None:
                    register, lanes = bad
                    a, b = got[trial, register, lanes], want[trial, register, lanes]
                    result.append(
                        InstructionDifference(
                            case, register, trial, tuple(lanes.tolist()), tuple(a.tolist()), tuple(b.tolist())
                        )
                    )
                    break
    return result


def _bad_lanes(case: InstructionCase, got: Array, want: Array) -> tuple[int, Array] | None:
    results = list(case.results)
    if case.compare == "f64":
        pair, results = results[:2], results[2:]
        wrong = np.flatnonzero(~equal_pairs(got[pair], want[pair]))
        if len(wrong):
            return pair[1], wrong
    captured = "dot2" in case.text or re.match("v_wmma_.*x16_b?f16", case.mnemonic)  # known to the last bit
    for register in results:
        kind = "bits" if case.compare == "f64" or captured else case.compare
        wrong = np.flatnonzero(~equal_lanes(kind, got[register], want[register]))
        if len(wrong):
            return register, wrong
    return None


def trial_count(slow_counts: Counts) -> int:
    return slow_counts(6, 24)


def without_exec_loads(kernel: InstructionKernel, code: bytes) -> bytes:
    """The same without loading EXEC before a case, so that the engine knows that EXEC is all ones."""
    words = np.frombuffer(code, np.uint32).copy()
    loads = words == (0xBEFE0000 | EXEC if kernel.wave == 32 else 0xBEFE0100 | EXEC)  # s_mov exec, s20 or s[20:21]
    assert loads.any()
    return np.where(loads, np.uint32(0xBF800000), words).astype(np.uint32).tobytes()  # s_nop 0


# level of the sanitizer, and whether EXEC is masked
WAYS = {"masked": ("off", True), "unmasked": ("off", False), "checked": ("full", True)}
RUNS = [
    pytest.param(name, way, id=f"{name}-{way}", marks=[] if quick else [pytest.mark.slow])
    for way in WAYS
    for name in KERNELS
    if way == "masked" or not name.startswith(("scalar", "wmma"))
    for quick in [".more" not in name and (way == "masked" or name == "vector32.core.0")]
]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name, way", RUNS)
@pytest.mark.slow(keep=50)
def test_engine_and_model_leave_the_same_state(name: str, way: str, slow_counts: Counts) -> None:
    kernel, code = KERNELS[name]
    level, masked = WAYS[way]
    code = code if masked else without_exec_loads(kernel, code)
    data = random_inputs(kernel.wave, trial_count(slow_counts), seed=sum(name.encode()))
    wanted, wanted_memory = run_kernel(ModelDevice(), kernel, code, data.copy())
    got, got_memory = run_kernel(EngineDevice(level=level), kernel, code, data.copy())
    untouched = np.flatnonzero(
        (got[:, :INPUTS] != data[:, : INPUTS * kernel.wave].reshape(-1, INPUTS, kernel.wave)).any(axis=(0, 2))
    )
    assert not len(untouched), f"inputs changed: v{untouched.tolist()}"
    result = list_differences(kernel, got, wanted)
    listed = "\n".join(str(item) for item in result[:20])
    assert not result, f"{len(result)} of {len(kernel.cases)} cases differ:\n{listed}"
    places = np.argwhere(~equal_lanes("f32", got_memory.view(np.uint32), wanted_memory.view(np.uint32)))
    assert not len(places), f"memory differs first at trial {places[0][0]}, dword {places[0][1]:#x}"


def test_results_vary_across_lanes_and_cases() -> None:
    """The cases write what differs from lane to lane and from what was there: else agreement means nothing."""
    kernel, code = KERNELS["vector32.core.1"]
    data = random_inputs(32, 4, seed=1)
    out, _ = run_kernel(ModelDevice(), kernel, code, data)
    kinds = Counter(len(np.unique(out[0, register])) > 8 for case in kernel.cases for register in case.results)
    assert kinds[True] > 0.6 * sum(kinds.values())
    assert len(np.unique(out[:, FIRST_RESULT : kernel.next])) > 1000


@pytest.mark.slow
def test_committed_kernels_match_their_sources() -> None:
    pytest.importorskip("ziglang")
    for kernel in all_kernels():
        text = kernel_assembly(kernel)
        assert assemble_text(text if kernel.wave == 32 else "; wave64\n" + text) == KERNELS[kernel.name][1], (
            f"{kernel.name}: make the file again with {COMMAND}"
        )
