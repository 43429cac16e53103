"""The router on gfx1201, bit for bit against the oracle: ties, NaN, tails, every number of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import bench, check_op
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.op import Op
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import SYNC
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower.lower import choose_entry


@pytest.mark.rest
@pytest.mark.parametrize(
    "attributes", [{"renormalise": False}, {"scale": 2.5}, {"scale": 0.0}, {"renormalise": False, "scale": 0.3}]
)
def test_weights_are_scaled_as_requested(attributes: dict[str, float]) -> None:
    check_op(
        Op.MOE_GATE_TOPK,
        random_floats(1, 2, 64),
        make_weight(random_floats(2, 20, 64), "f32"),
        None,
        k=4,
        **attributes,
    )


@pytest.mark.rest
def test_bias_changes_the_selection_but_not_the_weights() -> None:
    bias = make_weight(random_floats(5, 33), "f32")
    check_op(Op.MOE_GATE_TOPK, random_floats(1, 2, 64), make_weight(random_floats(2, 33, 64), "f32"), bias, k=6)
    norm = make_weight(random_floats(4, 64), "f32")
    check_op(
        Op.MOE_GATE_TOPK,
        random_floats(1, 2, 64),
        make_weight(random_floats(2, 33, 64), "f32"),
        bias,
        norm,
        k=6,
        eps=1e-5,
    )


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(
    ("dtype", "experts", "k", "attributes"),
    [
        ("q8_0", 12, 3, {}),
        ("q4_k", 40, 4, {"gating": "sigmoid", "renormalise": False, "groups": 5, "groups_used": 2}),
        ("f32", 130, 8, {"scale": 2.5}),
        ("bf16", 5, 1, {"activation": "gelu"}),
    ],
)
def test_router_and_projections_of_its_experts_are_one_launch(
    dtype: str, experts: int, k: int, attributes: dict[str, Any]
) -> None:
    """A workgroup selects up to its own choice; the last choice's first one stores ids and weights."""
    x, router = random_floats(1, 3, 256, scale=3), make_weight(random_floats(2, experts, 256))
    bias, norm = make_weight(random_floats(3, experts, scale=0.1)), make_weight(random_floats(4, 256))
    halves = [make_weight(random_floats(seed, experts, 17, 256), dtype) for seed in (5, 6)]
    scales = [make_weight(random_floats(seed, experts)) for seed in (7, 8)]
    attrs = {"k": k, "eps": 1e-5, **attributes}
    for operands in ((bias, norm, *halves), (None, norm, *halves, *scales), (bias, None, *halves)):
        launched = list_launched(x, router, *operands, **attrs)
        assert (launched[-1] == f"matvec_glu_routed_{dtype}") == (operands[1] is not None)
        check_op(Op.MOE_GATE_TOPK, x, router, *operands, **attrs, capacity={"tokens": 4})
    check_op(Op.MOE_GATE_TOPK, x[:1], router, None, norm, *halves, **attrs)
    for separate in ({"ordering": "canonical-1-q8"}, {"capacity": {"tokens": 16}}):
        check_op(Op.MOE_GATE_TOPK, x, router, bias, norm, *halves, **attrs, **separate)


def list_launched(x: np.ndarray, router: Weight, *others: Weight | None, **attrs: Any) -> list[str]:
    """Return the kernels of a router, in order."""
    shapes = (x.shape[0], router.shape[0]), (x.shape[0], attrs["k"]), (x.shape[0], attrs["k"])
    types = np.float32, np.int32, np.float32
    outputs = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)]
    outputs.append(np.zeros((x.shape[0], attrs["k"], 17), np.float32))
    result = bench(Op.MOE_GATE_TOPK, x, router, *others, outputs=tuple(outputs), **attrs)
    (entry,) = (row for row in KERNELS.entries if row.op is Op.MOE_GATE_TOPK and "canonical-1" in row.orderings)
    return [step.kernel for step in entry.code(result.node, result.graph, result.capacity) if step is not SYNC]


def test_ties_select_the_lower_expert_and_all_can_be_selected() -> None:
    same = make_weight(np.zeros((12, 32), np.float32), "f32")
    _, ids, _ = check_op(Op.MOE_GATE_TOPK, random_floats(1, 2, 32), same, None, k=12)
    assert ids.tolist() == [list(range(12))] * 2


def test_distant_infinite_and_nan_logits_match() -> None:
    x = np.zeros((4, 32), np.float32)
    x[0, 0], x[1, 0], x[2, 0], x[3, 0] = 1e30, np.inf, np.nan, 1.0
    gate = np.zeros((9, 32), np.float32)
    gate[:, 0] = [0, 1, -1, 1e10, -0.0, 1e-38, 88, -88, 1]
    check_op(Op.MOE_GATE_TOPK, x, make_weight(gate, "f32"), None, k=5)


@pytest.mark.parametrize("values", [1, 3])
def test_sigmoid_gates_and_expert_groups_match(values: int) -> None:
    gate = random_floats(values, 48, 32)
    bias = make_weight(random_floats(4, 48), "f32")
    check_op(Op.MOE_GATE_TOPK, random_floats(2, 3, 32), make_weight(gate, "f32"), None, k=6, gating="sigmoid")
    for groups, used in ((2, 1), (8, 4), (48, 48)):
        check_op(
            Op.MOE_GATE_TOPK,
            random_floats(3, 3, 32),
            make_weight(gate, "f32"),
            bias,
            k=used,
            gating="sigmoid",
            groups=groups,
            groups_used=used,
        )


def test_group_with_a_nan_expert_is_not_selected() -> None:
    gate = np.zeros((8, 32), np.float32)
    gate[:, 0] = [9, np.nan, 1, 2, -np.inf, 3, 0, 0]
    x = np.ones((1, 32), np.float32)
    _, ids, _ = check_op(
        Op.MOE_GATE_TOPK, x, make_weight(gate, "f32"), None, k=2, gating="sigmoid", groups=4, groups_used=2
    )
    assert set(ids[0].tolist()) <= {2, 3, 4, 5}


@pytest.mark.parametrize(("experts", "attributes", "reason"), [(1025, {"k": 2}, "2 of 1025 experts")])
def test_unsupported_configuration_is_rejected_with_the_reason(
    experts: int, attributes: dict[str, object], reason: str
) -> None:
    outputs = (random_floats(0, 1, experts), np.zeros((1, 2), np.int32), random_floats(0, 1, 2))
    result = bench(
        Op.MOE_GATE_TOPK,
        random_floats(1, 1, 32),
        make_weight(random_floats(2, experts, 32), "f32"),
        None,
        outputs=outputs,
        **attributes,
    )
    rows = [entry for entry in KERNELS.entries if entry.op is Op.MOE_GATE_TOPK]
    refusal = choose_entry(result.node, result.graph, rows, "canonical-1")
    assert isinstance(refusal, str) and reason in refusal
