"""What a launch executed, by class of evidence, and which outputs may depend on inexact instructions."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from code_objects import code_object

import zinc_rt
from zinc_rt.cli.launch import main
from zinc_rt.launching.executed import ExecutedInstructions
from zinc_rt.launching.source import find_toolchains
from zinc_rt.launching.values import inout, out

needs_compiler = pytest.mark.skipif(
    not list(find_toolchains()) or find_spec("elftools") is None,
    reason="needs clang for gfx1201 (PATH, or the package ziglang) and the package pyelftools",
)
SOURCE = """\
kernel void k(global float *twice, global float *sum, global int *quotient, global float *chosen,
              global const float *x, global const int *y) {
  int i = get_global_id(0);
  local float part[64];
  float e = native_exp2(x[i]);
  part[get_local_id(0)] = e;
  barrier(CLK_LOCAL_MEM_FENCE);
  sum[i] = part[63 - get_local_id(0)] + 1;
  quotient[i] = y[i] / (1 + (y[63 - get_local_id(0)] & 7));
  twice[i] = x[i] * 2;
  float s = 0;
  if (e > 1.0f) {
    s = 5 + x[i];
    for (int k = 0; k < (y[i] & 3); k++) s += x[i] * s;
  }
  chosen[i] = s;
}
"""
SEEDS = (1, 2, 1 << 48)


def make_outputs() -> dict[str, Any]:
    return {
        "twice": out(256, np.float32),
        "sum": out(256, np.float32),
        "quotient": out(256, np.int32),
        "chosen": out(256, np.float32),
    }


@needs_compiler
@pytest.mark.rest
def test_outputs_that_change_with_approximate_results_are_named(tmp_path: Path) -> None:
    path = tmp_path / "k.cl"
    path.write_text(SOURCE)
    random = np.random.default_rng(1)
    inputs = {"x": random.standard_normal(256).astype(np.float32), "y": random.integers(0, 1000, 256, np.int32)}

    def run(seed: int) -> Any:
        args = {**make_outputs(), **inputs}
        return zinc_rt.launch(path, grid=4, block=64, args=args, device="sim", sanitizer="fast", perturb=seed)

    exact = run(0)
    named = exact.executed.outputs
    assert named == {
        "twice": (),
        "sum": ("v_exp_f32",),
        "quotient": ("v_rcp_iflag_f32",),
        "chosen": ("v_exp_f32",),
    }
    assert exact.executed.inexact == {"v_exp_f32": 8, "v_rcp_iflag_f32": 8}, "one of each in every wave"
    changed = {
        name
        for seed in SEEDS
        for name, array in run(seed).outputs.items()
        if not np.array_equal(array, exact.outputs[name])
    }
    assert changed and changed <= {name for name, by in named.items() if by}


def test_instructions_are_counted_by_class_in_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wave beyond n leaves at the branch; only the first of several runs counts."""
    y, x = np.ones((2, 70), np.float32)
    args = {"y": inout(y), "x": x, "a": np.float32(3), "n": np.int32(64)}
    launched = [
        zinc_rt.launch(code_object(), "saxpy", grid=1, block=96, args=args, device="sim", times=times)
        for times in (1, 3)
    ]
    executed = launched[0].executed
    assert executed is not None and launched[1].executed == executed
    assert executed.inexact == {} and executed.outputs == {"y": ()}
    assert executed.classes["captured"] == 2, "v_fmac_f32 in two of three waves"
    code, report = tmp_path / "k.co", tmp_path / "r.json"
    code.write_bytes(code_object())
    words = [str(code), "--kernel", "saxpy", "--block", "96", "--device", "sim", "--json", str(report)]
    more = ["y=inout:f32[70]:ones", "x=in:f32[70]:ones", "a=f32:3", "n=i32:64"]
    assert main([*words, *(word for item in more for word in ("--arg", item))]) == 0
    manual = executed.classes["manual"]
    text = f"executed instructions: {manual} by the ISA manual, 2 as captured on gfx1201\n"
    assert text in capsys.readouterr().out
    (result,) = json.loads(report.read_text())["results"]
    assert result["measure"]["executed"]["classes"] == {"manual": manual, "captured": 2}


def test_lines_name_inexact_instructions_and_what_depends() -> None:
    executed = ExecutedInstructions(
        {"manual": 1204, "captured": 96, "assumed": 3, "approximate": 12},
        {"v_exp_f32": 12, "v_div_fmas_f32": 3},
        {"o0": ("v_exp_f32",), "o1": (), "o2": ()},
    )
    assert executed.lines == [
        "executed instructions: 1,204 by the ISA manual, 96 as captured on gfx1201, 3 assumed (v_div_fmas_f32), "
        "12 approximate (v_exp_f32)",
        "o0 may depend on v_exp_f32; o1, o2 depend on exact ones only",
    ]
    assert ExecutedInstructions().lines == []
