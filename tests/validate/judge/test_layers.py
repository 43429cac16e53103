"""Values of an engine's nodes: read from a program's graph, joined, compared, and the first wrong one named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "ci"))
import judge_engines
from patched_models import with_coarse_layer, with_number

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.sim.serve.program import build_library
from zinc_rt.validate.judge import layers
from zinc_rt.validate.judge.answers import AnswerFault
from zinc_rt.validate.judge.engine_client import EngineFeatures
from zinc_rt.validate.judge.engines import ENGINES
from zinc_rt.validate.judge.judgement import EngineJudgement
from zinc_rt.validate.judge.questions import JudgeQuestion
from zinc_rt.validate.judge.verdict import EngineDefect

GGML = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
struct tensor { int type; void *buffer; int64_t ne[4]; size_t nb[4]; const char *name, *op; float *data; };
typedef bool (*eval_callback)(struct tensor *, bool, void *);
static eval_callback callback;
void ggml_backend_sched_set_eval_callback(void *sched, eval_callback chosen, void *data) { callback = chosen; }
const char *ggml_get_name(struct tensor *t) { return t->name; }
const char *ggml_op_desc(struct tensor *t) { return t->op; }
size_t ggml_nbytes(struct tensor *t) { return (t->ne[1] - 1) * t->nb[1] + t->ne[0] * 4; }
void ggml_backend_tensor_get(struct tensor *t, void *out, size_t from, size_t size) { memcpy(out, t->data, size); }
bool compute(struct tensor *t) { return callback(t, true, 0) && callback(t, false, 0); }
"""
PROGRAM = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct tensor { int type; void *buffer; int64_t ne[4]; size_t nb[4]; const char *name, *op; float *data; };
void ggml_backend_sched_set_eval_callback(void *, void *, void *);
bool compute(struct tensor *);
int main(void)
{
    float data[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct tensor out = { 0, 0, { 3, 2, 1, 1 }, { 4, 16, 32, 32 }, "l_out-0", "ADD", data }, cache = out;
    cache.type = 1, cache.name = "l_out-1"; /* f16 */
    ggml_backend_sched_set_eval_callback(0, 0, 0);
    struct tensor other = out;
    other.name = "ffn_out-0";
    return compute(&out) && !compute(&cache) && !compute(&other) ? 0 : 1;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_preloaded_library_writes_the_chosen_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, text in (("ggml.c", GGML), ("program.c", PROGRAM)):
        (tmp_path / name).write_text(text)
    library, program = tmp_path / "libggml.so", tmp_path / "program"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", str(tmp_path / "ggml.c"), "-o", str(library)], check=True)
    source = [str(tmp_path / "program.c"), str(library), f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["cc", "-w", *source, "-o", str(program)], check=True)
    (tmp_path / "names").write_text("result_*\nl_out-*\n")
    preload = build_library([FOLDER / "llama_values.c"])
    environment = {**os.environ, "LD_PRELOAD": str(preload), "ZINC_LLAMA_VALUES": str(tmp_path)}
    assert subprocess.run([str(program)], env=environment, check=False).returncode == 0
    written = (tmp_path / "values").read_bytes()
    ((op, value),) = layers.read_values(written)["l_out-0"]
    assert op == "ADD"
    assert value.tolist() == [[1, 2, 3], [5, 6, 7]]  # rows of 16 bytes
    assert layers.read_values(written[:-1]) == {}  # an incomplete record


def test_passes_are_joined_by_operation() -> None:
    def rows(*values: float) -> np.ndarray:
        return np.array(values, np.float32).reshape(-1, 1)

    seen = {
        "l_out-0": [("ADD", rows(0, 1)), ("ADD", rows(2))],
        "Qcur-0": [("MUL_MAT", rows(3, 4)), ("ROPE", rows(5, 6)), ("MUL_MAT", rows(7)), ("ROPE", rows(8))],
        "l_out-1": [("ADD", rows(9))],  # only the last token of the last pass
    }
    joined = layers.join_passes(seen, 3)
    assert {name: [(op, value[:, 0].tolist()) for op, value in some] for name, some in joined.items()} == {
        "l_out-0": [("ADD", [0, 1, 2])],
        "Qcur-0": [("MUL_MAT", [3, 4, 7]), ("ROPE", [5, 6, 8])],
        "l_out-1": [("ADD", [9])],
    }


def _distance(name: str, error: float, quantised: float = 0.01) -> layers.ValueDistance:
    return layers.ValueDistance(name, error, quantised, 3, 7, 1.5, 2.5, layers.FLOOR)


@pytest.mark.parametrize(
    ("outputs", "nodes", "first", "text"),
    [
        (
            [0.02, 0.3],
            [0.02, 0.2],
            "node-1",
            "first wrong: l_out-1: RMS error 0.3, limit 0.044",
        ),
        ([0.02, float("nan")], [0.02], "l_out-1", "1 nodes of layer 0 are within theirs"),
        ([0.02, 0.02], [0.02, 0.2], "node-1", "2 outputs of layers are within their limits"),
        ([0.02, 0.02], [0.02], "", "2 outputs of layers are within their limits"),
    ],
)
def test_first_wrong_value_is_named(outputs: list[float], nodes: list[float], first: str, text: str) -> None:
    compared = layers.LayerComparison(
        (1, 2), [_distance(f"l_out-{n}", e) for n, e in enumerate(outputs)],
        [_distance(f"node-{n}", e) for n, e in enumerate(nodes)],
    )  # fmt: skip
    assert ("" if compared.first is None else compared.first.name) == first
    assert text in "\n".join(compared.format_lines())


def test_shortest_wrong_request_is_compared() -> None:
    question = JudgeQuestion("tokens/0", "tokens", {}, (1, 2, 3))
    fault = AnswerFault(question, "alone", "token", "", position=4, tokens=(5, 6, 7))
    longer = replace(fault, question=replace(question, prompt=tuple(range(9))), position=9)
    judgement = EngineJudgement(EngineFeatures(), text=(8, 8))
    judgement.findings = [EngineDefect("sampler", "", faults=[longer, fault])]
    assert layers.choose_prompt(judgement) == (1, 2, 3, 5)
    judgement.findings = [EngineDefect("numerics", "")]
    assert layers.choose_prompt(judgement) == (8, 8)
    judgement.findings = [EngineDefect("template", "", faults=[fault])]
    assert layers.choose_prompt(judgement) == ()


def test_other_engines_name_the_command() -> None:
    compared = layers.compare_layers(ENGINES["ours"], "M.gguf", (), (1, 2), slots=8, ctx=64)
    assert compared.next == "zinc-rt validate --model M.gguf --tokens 1,2"
    assert any("not compared" in line for line in compared.format_lines())


SMOLLM = "smollm2-135m"
DEFECTS = {
    "": None,
    "l_out-5": with_coarse_layer(5, 3),
    "Qcur-0": with_number("llama.rope.freq_base", lambda base: base * 0.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", DEFECTS)
def test_first_wrong_node_of_a_released_server_is_found(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server serves a patched copy; the reference computes the original."""
    try:
        program = judge_engines.install("llama-server-b10434", offline=True)
        model = served = judge_engines.install(SMOLLM, offline=True)
    except layers.NothingRan as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    if patch := DEFECTS[wrong]:
        served = tmp_path / "patched.gguf"
        patch(model, served)
    start = layers.start_engine
    monkeypatch.setattr(layers, "start_engine", lambda program, _, *a, **k: start(program, str(served), *a, **k))
    tokens = [1, *range(400, 550)]
    words = [*judge_engines.ON_CPU, "-ub", "64", "-b", "64"]  # three passes
    compared = layers.compare_layers(ENGINES["llama-server"], str(model), words, tokens, slots=8, ctx=256)
    text = "\n".join(compared.format_lines())
    if wrong.startswith("l_out"):
        assert f"layers    first wrong: {wrong}" in text
        assert "node      first wrong: Qcur.matmul-5" in text
    else:
        assert ("" if compared.first is None else compared.first.name) == wrong, text
    assert len(compared.layers) == 32 and len(compared.nodes) >= 12, text
