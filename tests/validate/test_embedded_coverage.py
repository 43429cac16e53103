"""What each embedded model is there for: a fault that it shows, by node, and that another one cannot show.

docs/validate.md has the same table in words. Faults are in both stages of the graph, in what is resident or in the
code of one node, on a tier of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from planted import Code, PlantedFault, Rewrite, change_attribute, change_rope_base, replace_op
from seen import Planting

from zinc_rt.cli.observer import CommandObserver
from zinc_rt.cli.report import Result
from zinc_rt.golden import draws
from zinc_rt.golden.embedded import FOLDER, STEMS
from zinc_rt.host.settings import Settings
from zinc_rt.ir.graph import OpGraph
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.validate import runner
from zinc_rt.validate.command import parser
from zinc_rt.validate.diagnosis.digest import diagnose_failures
from zinc_rt.validate.diagnosis.failures import ModelFailures
from zinc_rt.validate.prepare import prepare_jobs
from zinc_rt.validate.run import validate
from zinc_rt.validate.runner import ValidationRunner

# Values compared by name with llama.cpp's, at least; fewer means that a label went astray.
LEAST_COMPARED = {"qwen35moe-q": 85, "qwen3-q": 47, "gemma4-q": 116, "gemma4moe-q": 55}
NOTHING = PlantedFault()


def keep_graph(graph: OpGraph) -> OpGraph:
    return graph


@dataclass(frozen=True)
class Fault:
    """`node`: the value that is named; `unseen`: a model it cannot show in."""

    name: str
    model: str
    node: str
    graph: Rewrite = keep_graph
    plant: PlantedFault = NOTHING
    unseen: str = ""

    def __str__(self) -> str:
        return f"{self.name} in {self.model}"


def swap_weights(first: str, second: str) -> Rewrite:
    """Swap the weights of two nodes of one layer."""

    def rewrite_nodes(graph: OpGraph) -> OpGraph:
        one, other = (next(node for node in graph.nodes if node.label == label) for label in (first, second))
        theirs = {first: other.inputs, second: one.inputs}
        nodes = (replace(node, inputs=theirs.get(node.label, node.inputs)) for node in graph.nodes)
        return replace(graph, nodes=tuple(nodes))

    return rewrite_nodes


def change_result(label: str, op: str, change: Callable[..., Any]) -> PlantedFault:
    """Replace the node's result by `change(result, operands)`."""

    def wrap_code(code: Code) -> Code:
        return lambda math, *operands, **own: change(code(math, *operands, **own), operands)

    return PlantedFault(label, op, code=wrap_code)


def break_ties_from_the_end(routed: Any, operands: Any) -> Any:
    """Among equally likely experts, select the one with the larger number first."""
    logits, ids, weights = routed
    last = logits.shape[-1] - 1
    order = last - np.argsort(-logits[:, ::-1], axis=-1, kind="stable")[:, : ids.shape[1]]
    return logits, order.astype(ids.dtype), weights


def compute_whole_tiles(label: str, width: int = 256) -> PlantedFault:
    """A projection that omits the contribution of its last, partial tile."""

    def wrap_code(code: Code) -> Code:
        def run_in_tiles(math: Any, x: np.ndarray, *operands: Any, **own: Any) -> Any:
            whole = x.shape[-1] // width * width
            return code(math, np.where(np.arange(x.shape[-1]) < whole, x, np.float32(0)), *operands, **own)

        return run_in_tiles

    return PlantedFault(label, "MATMUL", code=wrap_code)


def drop_gate(value: Any, operands: Any) -> Any:
    return operands[0]


def use_keys_of_another_layer(graph: OpGraph) -> OpGraph:
    """Layer 4 shares with layer 1, not 2."""

    def redirect_inputs(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.replace("[2]", "[1]") if name.startswith("state.kv") else name for name in names)

    nodes = (replace(n, inputs=redirect_inputs(n.inputs)) if n.label == "kqv_out-4" else n for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def change_scores(name: str, change: Callable[[Any], Any], **where: Any) -> Rewrite:
    return change_attribute(("FLASH_ATTN", "FLASH_ATTN_BATCHED"), name, change, **where)


def multiply_eps(layer: int) -> Rewrite:
    return change_attribute(("RMS_NORM",), "eps", lambda eps: 10 * eps, layer=layer)


FAULTS = (
    Fault("rope base x 1.001", "qwen3-q", "Qcur-0", plant=change_rope_base(1.001)),
    Fault("gate and up swapped", "qwen3-q", "ffn_gate-1", swap_weights("ffn_gate-1", "ffn_up-1")),
    Fault("attention scale x 1.0005", "qwen3-q", "kqv_out-0", change_scores("scale", lambda s: s * 1.0005)),
    Fault(
        "the same in decode only",
        "qwen3-q",
        "kqv_out-0",
        change_scores("scale", lambda s: s * 1.0005, stage="decode"),
    ),
    Fault("epsilon x 10 in one layer", "qwen3-q", "attn_norm-1", multiply_eps(1)),
    Fault(
        "window one long",
        "gemma4-q",
        "kqv_out-0",
        change_scores("window", lambda w: w and w + 1),
        unseen="qwen3-q",
    ),
    Fault("embedding scale x 1.00002", "gemma4-q", "inp_scaled", plant=replace_op("inp_scaled", factor=16.00032)),
    Fault("keys of another layer", "gemma4-q", "kqv_out-4", use_keys_of_another_layer),
    Fault("epsilon of a DeltaNet", "qwen35moe-q", "attn_output-1", plant=replace_op("attn_output-1", eps=1e-3)),
    Fault("a gate left out", "qwen35moe-q", "attn_gated-3", plant=change_result("attn_gated-3", "", drop_gate)),
    Fault(
        "weights not normalised",
        "qwen35moe-q",
        "ffn_moe_weights_norm-2",
        plant=replace_op("ffn_moe_logits-2", renormalise=False),
    ),
    Fault(
        "ties from the other end",
        "gemma4moe-q",
        "ffn_moe_topk-0",
        plant=change_result("ffn_moe_logits-0", "", break_ties_from_the_end),
        unseen="qwen35moe-q",
    ),
    Fault("last tile left out", "gemma4moe-q", "Qcur-0", plant=compute_whole_tiles("Qcur-0"), unseen="gemma4-q"),
    Fault(
        "attention over 256 keys",
        "gemma4moe-q",
        "kqv_out-1",
        change_scores("window", lambda w: w or 256),
        unseen="gemma4-q",
    ),
)
DEFAULT = ("rope base x 1.001", "the same in decode only", "window one long", "ties from the other end")


def judge_model(model: str, tiers: str = "t1") -> tuple[list[Result], list[str]]:
    """Return the results against the embedded golden only, and the digest."""
    line = [
        "--model",
        f"{FOLDER / model}.gguf",
        "--golden",
        f"{FOLDER / model}.npz",
        "--tiers",
        tiers,
        "--no-cache",
    ]
    arguments = parser().parse_args([*line, "--steps", "0"])
    arguments.observer = CommandObserver()
    [job] = prepare_jobs(arguments, Settings())
    job = replace(job, alone=False)
    with ValidationRunner(job) as runner:
        results = list(validate(runner))
        return results, list(diagnose_failures(ModelFailures(job, results, runner.group_by_bits())))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=str(fault), marks=() if fault.name in DEFAULT else pytest.mark.slow)
        for fault in FAULTS
    ],
)
def test_fault_is_named_by_its_node(fault: Fault, plant_fault: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_fault(fault.plant)
    monkeypatch.setattr(runner, "transform", lambda layers: fault.graph)
    results, digest = judge_model(fault.model)
    [nodes] = [result for result in results if result.id.endswith("/nodes")]
    assert nodes.status == "fail" and nodes.first_bad["node"] == fault.node
    text = "\n".join(digest)
    assert f"node {fault.node}, token" in text, "the digest says which, in its first line or the next"
    assert "no other tier ran" in text or f"suspect the model code's decode at {fault.node}" in text
    if fault.unseen:
        assert not [result for result in judge_model(fault.unseen)[0] if result.status == "fail"]


@pytest.mark.rest
@pytest.mark.parametrize("model", STEMS)
def test_minimum_number_of_nodes_is_compared(model: str) -> None:
    results, digest = judge_model(model, "t_cpu")
    assert not digest and {result.status for result in results} == {"pass"}, "nothing is left out"
    [nodes] = [result for result in results if result.id.endswith("/nodes")]
    assert nodes.measure["compared"] >= LEAST_COMPARED[model]
    assert nodes.measure["stages"] == (["prefill", "decode"] if nodes.measure["fed"] else ["prefill"])
    assert nodes.measure["fed"] == (model != "gemma4moe-q"), "its golden holds five tokens, so no layer can be fed"
    apart = nodes.measure["not_compared"]
    assert apart["not_computed_here"] == []
    assert "kq_soft_max-0" in apart["llama_cpp_only"] or model == "qwen35moe-q", "fused here, and said"
    assert nodes.measure["spread"] > 0, "two engines, two orders of summing"


def test_golden_contains_deciding_router_ties(plant_fault: Planting) -> None:
    """In the golden itself: experts 3 apart have one router row, and the choice falls between such."""
    from zinc_rt.golden.format import read_golden

    golden = read_golden(FOLDER / "gemma4moe-q.npz")
    logits = golden.nodes["ffn_moe_logits-1"]
    chosen = golden.experts[1]
    assert all((logits[:, expert] == logits[:, expert + 3]).all() for expert in range(5))
    cut = [row for row, ids in enumerate(chosen) if len({int(i) % 3 for i in ids}) == 2]
    assert cut, "two of one kind are chosen and one of the next, of which there are three"
    assert all((ids[1:] > ids[:-1])[ids[1:] % 3 == ids[:-1] % 3].all() for ids in chosen), "the lower first"


# --- what has no node -----------------------------------------------------------------------------------------


def test_wrong_draw_fails_the_sampler_check(plant_fault: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draws.sample

    def filter_min_p_last(math: Any, logits: Any, seed: Any, sampling: Any, choice: Any, position: Any) -> Any:
        return whole(math, logits, seed, sampling, choice, position + 1)

    plant_fault(NOTHING)
    monkeypatch.setattr(draws, "sample", filter_min_p_last)
    results, digest = judge_model("qwen3-q")
    assert [result.id.rpartition("/")[2] for result in results if result.status == "fail"] == ["draws"]
    assert any(line.startswith("suspect    every logit agrees, but a draw from them does not") for line in digest)
    assert any(line.startswith("next       zinc-rt run --model ") and "--seed=" in line for line in digest)


def test_wrong_token_fails_the_tokenizer_check(plant_fault: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Tokenizer.encode

    def replace_nbsp(self: Tokenizer, text: str, **options: Any) -> list[int]:
        return whole(self, text.replace("\u00a0", " "), **options)

    plant_fault(NOTHING)
    monkeypatch.setattr(Tokenizer, "encode", replace_nbsp)
    results, digest = judge_model("qwen3-q")
    [failed] = [result for result in results if result.status == "fail"]
    assert failed.kind == "tokenizer" and "no-break" in failed.cause
    assert any(line.startswith("next       zinc-rt tokenize --model ") for line in digest)
