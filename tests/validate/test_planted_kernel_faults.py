"""One wrong bit in one kernel of the simulated T1, and validate names the node whose kernel it is.

The bit is one that the assembler would never question: in a constant, a register's number or an offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from seen import Validate

from zinc_rt.engine import devices
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.isa import decode_stream, target_of
from zinc_rt.kernels import sets
from zinc_rt.kernels.sets import kernel_set
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.validate.command import main

pytestmark = pytest.mark.skipif(kernel_set("gfx1201") is None, reason="no gfx1201 kernels in this build")


@dataclass(frozen=True)
class Fault:
    """Bit `bit` of the instruction whose text begins with `text` (n-th of these), and the node it spoils first."""

    kernel: str
    text: str
    bit: int
    node: str
    nth: int = 0
    model: str = "qwen3-q"


FAULTS = (
    Fault("swiglu", "v_mul_f32_e32", 25, "ffn_swiglu-0"),  # becomes v_mul_i32_i24
    Fault("rms_norm", "v_mul_f32_e32", 25, "attn_norm-0", nth=1),
    Fault("matvec_q4_k", "v_add_f32_e32", 0, "Qcur.matmul-0"),  # another register
    Fault("flash_attn_128", "v_mul_f32_e32 v", 25, "kqv_out-0"),
    Fault("delta_net", "v_mul_f32_e32", 25, "attn_output-0", model="qwen35moe-q"),
    Fault("moe_topk", "v_mul_f32_e32", 25, "ffn_moe_topk-0", model="qwen35moe-q"),
)


def flipped(zrt: Zrt, fault: Fault) -> Zrt:
    matches = [
        item
        for item in decode_stream(zrt.code, target_of("gfx1201"))
        if item.instruction is not None and item.instruction.text.startswith(fault.text)
    ]
    assert len(matches) > fault.nth, f"{fault.kernel} has no {fault.text}"
    at = 8 * matches[fault.nth].at + fault.bit
    code = bytearray(zrt.code)
    code[at // 8] ^= 1 << at % 8
    return replace(zrt, code=bytes(code))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "fault",
    [*FAULTS[:2], *(pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS[2:])],
    ids=lambda fault: fault.kernel,
)
def test_flipped_bit_in_a_kernel_is_detected_and_its_node_named(
    fault: Fault, validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kernel_set("gfx1201")
    assert whole is not None

    def load(name: str) -> Zrt:
        return flipped(whole.load(name), fault) if name == fault.kernel else whole.load(name)

    monkeypatch.setattr(sets, "kernel_set", lambda arch: replace(whole, load=load))
    monkeypatch.setattr(devices, "amd_gpus", tuple)
    model = str(FOLDER / f"{fault.model}.gguf")
    seen = validate("--model", model, "--tiers", "t1,t_cpu", "--tokens", "3,1,4", "--steps", "0")
    assert seen.exit == 1
    first = seen.result("first-divergent")["first_bad"]
    assert first["node"] == fault.node and fault.kernel in first["kernels"]


@pytest.mark.rest
def test_stalled_wave_ends_the_run_at_once_with_its_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = kernel_set("gfx1201")
    assert whole is not None

    def load(name: str) -> Zrt:
        zrt = whole.load(name)
        return replace(zrt, code=b"\xff" * 4 + zrt.code[4:]) if name == "swiglu" else zrt

    monkeypatch.setattr(sets, "kernel_set", lambda arch: replace(whole, load=load))
    monkeypatch.setattr(devices, "amd_gpus", tuple)
    monkeypatch.chdir(tmp_path)
    assert main(["--model", str(FOLDER / "qwen3-q.gguf"), "--tiers", "t1,t_cpu", "--tokens", "3,1"]) == 1
    said = capsys.readouterr().err
    assert "a wave stopped for good" in said and "kernel swiglu" in said
    [report] = tmp_path.glob("zinc-rt-hangs/*/report.txt")
    assert "swiglu" in report.read_text() and "\nnode     SWIGLU" in report.read_text()
    assert "ffn_swiglu-0" in json.loads(report.with_name("report.json").read_text())["node"]
