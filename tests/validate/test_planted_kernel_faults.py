"""One wrong bit in one kernel of the simulated T1, and validate names the node whose kernel it is.

The bit is one that the assembler would never question: in a constant, a register's number or an offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from planted_kernel import flip_bit, plant_kernel
from seen import Validate

from zinc_rt.engine import devices, graph_store, variants
from zinc_rt.engine.answering import Answering
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.graph_store import GraphStore, StoredGraphs
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.version import digest_planning
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.lower import flat_plan
from zinc_rt.model.builder import Overrides
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.sample_graph import RING
from zinc_rt.validate.command import main
from zinc_rt.validate.forms import FORMS, MASKED, EveryThird

pytestmark = pytest.mark.skipif(find_kernel_set("gfx1201") is None, reason="no gfx1201 kernels in this build")


@dataclass(frozen=True)
class Fault:
    """Bit `bit` of the n-th instruction whose text begins with `text`, and the first node with a wrong result."""

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


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "fault",
    [*FAULTS[:2], *(pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS[2:])],
    ids=lambda fault: fault.kernel,
)
def test_flipped_bit_in_a_kernel_is_detected_and_its_node_named(
    fault: Fault, run_validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_kernel(monkeypatch, fault.kernel, lambda zrt: flip_bit(zrt, fault.text, fault.bit, fault.nth))
    model = str(FOLDER / f"{fault.model}.gguf")
    seen = run_validate("--model", model, "--tiers", "t1,t_cpu", "--tokens", "3,1,4", "--steps", "0")
    assert seen.exit == 1
    first = seen.result("first-divergent")["first_bad"]
    assert first["node"] == fault.node and fault.kernel in first["kernels"]


@pytest.mark.rest
def test_stalled_wave_ends_the_run_at_once_with_its_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant_kernel(monkeypatch, "swiglu", lambda zrt: replace(zrt, code=b"\xff" * 4 + zrt.code[4:]))
    monkeypatch.chdir(tmp_path)
    assert main(["--model", str(FOLDER / "qwen3-q.gguf"), "--tiers", "t1,t_cpu", "--tokens", "3,1"]) == 1
    errors = capsys.readouterr().err
    assert "a wave stopped for good" in errors and "kernel swiglu" in errors
    [report] = tmp_path.glob("zinc-rt-hangs/*/report.txt")
    assert "swiglu" in report.read_text() and "\nnode     SWIGLU" in report.read_text()
    assert "ffn_swiglu-0" in json.loads(report.with_name("report.json").read_text())["node"]


@pytest.mark.rest
@pytest.mark.parametrize("form", ["greedy", "all"])
def test_stored_graph_of_other_settings_is_detected(
    form: str, run_validate: Validate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that forgets the overrides: the cache then gives a graph that was planned for another scale."""
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    monkeypatch.setattr(graph_store, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(variants, "find_overrides", lambda settings: Overrides(gemma4_attn_scale=0.5))
    of = GraphStore.of

    def key_without_overrides(self: GraphStore, gguf: Any, backend: Any, **decides: object) -> StoredGraphs:
        return of(self, gguf, backend, **{**decides, "overrides": None})

    monkeypatch.setattr(GraphStore, "of", key_without_overrides)
    gguf = read_gguf(FOLDER / "gemma4-q.gguf")
    options = EngineOptions(store=GraphStore(digest_planning()))
    with (
        Engine(gguf, open_backend(choose_tier("t1", "sim"), "canonical-1"), ctx=64, options=options) as engine,
    ):
        asking = Answering(engine)
        asked = asking.submit([3, 1, 4], FORMS[form], grammar=EveryThird() if form == MASKED else None)
        while not asked.done:
            asking.step()
    monkeypatch.undo()
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    monkeypatch.setattr(graph_store, "cache_folder", lambda: tmp_path)
    line = ("--model", str(gguf.path), "--tiers", "t1,t_cpu", "--tokens", "3,1,4", "--steps", "1", "--ctx", "64")
    seen = run_validate(*line)
    assert seen.exit == 0 and seen.result("stored")["measure"]["refused"] == []
    monkeypatch.setattr(GraphStore, "of", key_without_overrides)
    seen = run_validate(*line)
    assert seen.exit == 1 and seen.names_with_status("fail") == ["stored"]
    stored = seen.result("stored")
    assert stored["first_bad"]["form"] == form and stored["first_bad"]["node"] == "logits"
    assert stored["advice"] == f"rm -r {tmp_path / 'graphs'}"
    assert "only graphs read from the cache differ" in json.dumps(seen.report["details"])


@pytest.mark.rest
def test_damaged_graph_of_a_sampling_form_is_refused_and_replaced(
    run_validate: Validate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    monkeypatch.setattr(graph_store, "cache_folder", lambda: tmp_path)
    model = str(FOLDER / "qwen3-q.gguf")
    line = ("--model", model, "--tiers", "t1,t_cpu", "--tokens", "3,1,4", "--steps", "1", "--ctx", "64")
    assert run_validate(*line).exit == 0
    of_forms = [path for path in (tmp_path / "graphs").glob("*.zro") if b"SampleForm" in path.read_bytes()]
    plans = [path for path in of_forms if flat_plan.MAGIC in path.read_bytes()]
    assert len(plans) == 2 * len(FORMS) + 1, "a prompt's pass and a decode in each form, and a late draw"
    damaged = [path for path in plans if b"'late'" in path.read_bytes() or b"top=20" in path.read_bytes()]
    for path in damaged:
        content = bytearray(path.read_bytes())
        content[-100] ^= 1
        path.write_bytes(content)
    seen = run_validate(*line)
    stored = seen.result("stored")
    assert seen.exit == 0 and len(damaged) == len(stored["measure"]["refused"]) == 3
    assert "3 stored graphs were refused: " in stored["reason"] and "checksum" in stored["reason"]
    result = run_validate(*line).result("stored")
    assert result["measure"]["read"] == len(plans) and result["measure"]["refused"] == []


@pytest.mark.rest
def test_token_delivered_with_a_wrong_position_is_detected(
    run_validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_kernel(
        monkeypatch, "stream_out", lambda zrt: flip_bit(zrt, "v_mov_b32_e32 v3, s27", 0)
    )  # s26, the token
    model = str(FOLDER / "qwen3-q.gguf")
    seen = run_validate("--model", model, "--tiers", "t1,t_cpu", "--tokens", "3,1,4", "--steps", "1")
    assert seen.exit == 1 and seen.names_with_status("fail") == ["forms", "stored"]
    forms = seen.result("forms")
    assert forms["first_bad"]["node"] == RING and "position 3, " in forms["cause"]
    assert "suspect the sampling kernels of t1" in json.dumps(seen.report["details"])
