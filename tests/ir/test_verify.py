from __future__ import annotations

from dataclasses import replace

import pytest
from op_examples import example_node

from zinc_rt.ir.graph import ABSENT, BufferSpec, Builder, Node, OpGraph
from zinc_rt.ir.op import MAX_BINDINGS, OPS, Op, Port
from zinc_rt.ir.verify import VerifyError, find_violations, verify_graph

ALL = list(OPS)


def with_node(graph: OpGraph, index: int = 0, **changes) -> OpGraph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def with_buffer(graph: OpGraph, buffer: str, **changes) -> OpGraph:
    return replace(graph, buffers={**graph.buffers, buffer: replace(graph.buffers[buffer], **changes)})


def first_operands(graph: OpGraph) -> list[tuple[Port, str]]:
    """Return the first node's ports, each with its buffer."""
    node, spec = graph.nodes[0], OPS[graph.nodes[0].op]
    return list(zip((*spec.inputs, *spec.outputs), (*node.inputs, *node.outputs), strict=not spec.variadic))


def violated_rules(graph: OpGraph) -> list[str]:
    return [finding.rule for finding in find_violations(graph)]


# Every opcode: good as the table has it, bad when any operand is off.


@pytest.mark.parametrize("op", ALL)
@pytest.mark.parametrize("optional", [True, False])
def test_every_opcode_can_be_written_and_verified(op, optional):
    verify_graph(example_node(op, optional=optional))


@pytest.mark.parametrize("op", [op for op in ALL if not OPS[op].variadic])
def test_every_opcode_rejects_one_operand_too_few_or_too_many(op):
    graph = example_node(op)
    node = graph.nodes[0]
    for changes in (
        {"inputs": node.inputs[:-1]},
        {"inputs": (*node.inputs, node.inputs[0])},
        *({"outputs": node.outputs[:-1]} for port in OPS[op].outputs[-1:] if not port.optional),
        {"outputs": (*node.outputs, "act.extra")},
    ):
        assert "operand-count" in violated_rules(with_node(graph, **changes))


@pytest.mark.parametrize("op", ALL)
def test_every_opcode_rejects_a_wrong_dtype_on_each_operand(op):
    graph = example_node(op)
    for port, name in first_operands(graph):
        if port.kind in ("float", "index"):
            wrong = "i32" if port.kind == "float" else "f32"
            texts = [str(f) for f in find_violations(with_buffer(graph, name, dtype=wrong))]
            assert any(f"dtype: {port.name}" in line for line in texts), texts


@pytest.mark.parametrize("op", ALL)
def test_every_opcode_rejects_a_wrong_rank_on_each_operand(op):
    graph = example_node(op)
    for port, name in first_operands(graph):
        shape = graph.buffers[name].shape
        if "..." not in port.shape:
            assert "shape" in violated_rules(with_buffer(graph, name, shape=(*shape, 1)))
        assert "shape" in violated_rules(with_buffer(graph, name, shape=())), port


@pytest.mark.parametrize("op", ALL)
def test_every_opcode_rejects_unknown_or_missing_attributes(op):
    graph = example_node(op)
    attrs = graph.nodes[0].attrs
    assert "attribute" in violated_rules(with_node(graph, attrs={**attrs, "colour": 1}))
    for attr in OPS[op].attrs:
        assert "attribute" in violated_rules(with_node(graph, attrs={**attrs, attr.name: object()}))
        if attr.default is None:
            left = {name: value for name, value in attrs.items() if name != attr.name}
            assert "attribute" in violated_rules(with_node(graph, attrs=left))
        if attr.choices:
            assert "attribute" in violated_rules(with_node(graph, attrs={**attrs, attr.name: "sideways"}))


# Every rule: the smallest graph that breaks it.


def chain_graph(*, dtype: str = "f32") -> Builder:
    """x (step) -> y = x + x."""
    g = Builder("chain")
    g.buffer("step.x", ("tokens", 8), dtype, "step")
    g.buffer("act.y", ("tokens", 8), "f32", "activation")
    g.node(Op.SCALE, ("step.x", ABSENT), ("act.y",), layer=1, label="y-1")
    return g


def norm_graph(size: object = 4, **attrs: object) -> OpGraph:
    g = Builder("norm")
    g.buffer("step.x", ("tokens", 8), "f32", "step")
    g.buffer("act.y", ("tokens", 8), "f32", "activation")
    g.node(Op.RMS_NORM, ("step.x", ABSENT), ("act.y",), **{"eps": 1e-6, "size": size, **attrs})  # type: ignore[arg-type]
    return g.build()


def add_node(g: Builder, *nodes: Node) -> OpGraph:
    graph = g.build()
    return replace(graph, nodes=(*graph.nodes, *nodes))


def graph_with_many_operands() -> OpGraph:
    g = Builder("wide")
    names = [g.buffer(f"state.s[{n}]", (1,), "f32", "state") for n in range(MAX_BINDINGS + 1)]
    g.node(Op.BARRIER, tuple(names), ())
    return g.build()


def kv_graph(*, barrier: tuple[str, ...] | None = None, readers: str = "read") -> OpGraph:
    """Write K and V into the cache, then use it."""
    g = Builder("kv")
    step = {name: g.buffer(f"step.{name}", ("tokens",), "i32", "step") for name in ("position", "slot")}
    table = g.buffer("step.page_table", (2, 4), "i32", "step")
    k, v, q = (g.buffer(f"step.{name}", ("tokens", 64), "f32", "step") for name in "kvq")
    kv_k = g.buffer("state.kv_k[0]", (64, 64), "f32", "state")
    kv_v = g.buffer("state.kv_v[0]", (64, 64), "f32", "state")
    paged = (step["position"], step["slot"], table)
    attention = {"heads": 1, "kv_heads": 1, "head_dim": 64, "value_dim": 64, "scale": 0.125}
    out = g.buffer("act.out", ("tokens", 64), "f32", "activation")
    if readers == "read-before":
        g.node(Op.FLASH_ATTN, (q, kv_k, kv_v, *paged), (out,), **attention)
    g.node(Op.KV_WRITE_BATCHED, (k, v, *paged, kv_k, kv_v), (kv_k, kv_v))
    if barrier is not None:
        g.node(Op.BARRIER, barrier, ())
    if readers == "write":
        g.node(Op.KV_WRITE_BATCHED, (k, v, *paged, kv_k, kv_v), (kv_k, kv_v))
    if readers != "read-before":
        g.node(Op.FLASH_ATTN, (q, kv_k, kv_v, *paged), (out,), **attention)
    return g.build()


def kv_graph_with_two_caches() -> OpGraph:
    graph = kv_graph(barrier=())
    elsewhere = BufferSpec("state.kv_k[1]", (64, 64), "f32", "state")
    graph = replace(graph, buffers={**graph.buffers, elsewhere.name: elsewhere})
    return with_node(graph, outputs=(elsewhere.name, "state.kv_v[0]"))


def copy_graph(role: str, name: str = "act.z") -> OpGraph:
    """y = scale(x); z = scale(y), z of the given role."""
    g = chain_graph()
    g.buffer(name, ("tokens", 8), "f32", role)  # type: ignore[arg-type]
    g.node(Op.SCALE, ("act.y", ABSENT), (name,))
    return g.build()


BROKEN = {
    "stage": (
        replace(chain_graph().build(), stage="later"),
        "stage",
        "expected one of prefill, decode, both, saw 'later'",
    ),
    "opcode": (with_node(chain_graph().build(), op=99), "opcode", "99 has no row"),
    "buffer filed elsewhere": (
        with_buffer(chain_graph().build(), "act.y", name="act.z"),
        "buffer-name",
        "filed as 'act.y', calls itself 'act.z'",
    ),
    "role": (with_buffer(chain_graph().build(), "act.y", role="scratch"), "role", "saw 'scratch'"),
    "no such dtype": (with_buffer(chain_graph().build(), "act.y", dtype="f31"), "dtype", "'f31' is no ggml type"),
    "zero dimension": (with_buffer(chain_graph().build(), "act.y", shape=("tokens", 0)), "dimension", "saw 0"),
    "unknown symbol": (
        with_buffer(chain_graph().build(), "act.y", shape=("pages", 8)),
        "dimension",
        "saw 'pages'",
    ),
    "half a block": (
        with_buffer(example_node(Op.EMBED), "in.table", shape=(64, 33), dtype="q8_0"),
        "whole-blocks",
        "33 elements are not whole blocks of 32",
    ),
    "layer": (with_node(chain_graph().build(), layer=-1), "layer", "saw -1"),
    "undeclared": (
        with_node(chain_graph().build(), inputs=("act.x", ABSENT)),
        "undeclared-buffer",
        "act.x is declared no",
    ),
    "absent": (with_node(chain_graph().build(), inputs=(ABSENT, ABSENT)), "absent-operand", "x is not optional"),
    "too many bindings": (graph_with_many_operands(), "bindings", "17 buffers, at most 16"),
    "barrier writes": (with_node(example_node(Op.BARRIER), outputs=("act.y",)), "operand-count", "writes none"),
    "barrier names nothing": (
        with_node(example_node(Op.BARRIER), inputs=(ABSENT,)),
        "operand-count",
        "names buffers",
    ),
    "attribute missing": (with_node(norm_graph(), attrs={"size": 4}), "attribute", "eps is required"),
    "attribute unknown": (norm_graph(colour=1), "attribute", "colour is not one of eps, size"),
    "int for float": (norm_graph(eps=1), "attribute", "eps expected float, saw int 1"),
    "bool for int": (norm_graph(size=True), "attribute", "size expected int, saw bool True"),
    "nan": (norm_graph(eps=float("nan")), "attribute", "eps expected a finite number"),
    "choice": (
        with_node(example_node(Op.MOE_SWIGLU), attrs={"activation": "relu"}),
        "attribute",
        "expected one of silu, gelu, clamped, saw 'relu'",
    ),
    "dtype": (chain_graph(dtype="f16").build(), "dtype", r"x \(step.x\) needs f32, saw f16"),
    "any: two dtypes": (
        with_buffer(example_node(Op.LOAD_REQUEST_STATE), "act.value", dtype="i32"),
        "dtype",
        r"value \(act.value\) is i32, the operand before it f32",
    ),
    "weight from an activation": (
        with_buffer(example_node(Op.EMBED), "in.table", role="state"),
        "role",
        "needs a weight or constant, saw role state",
    ),
    "weight as a value": (with_buffer(chain_graph().build(), "step.x", role="weight"), "role", "takes no weight"),
    "shape": (
        with_buffer(chain_graph().build(), "act.y", shape=("tokens", 9)),
        "shape",
        r"y \(act.y\): expected N to be 8, got 9 in \[tokens, 9\]",
    ),
    "symbols differ": (
        with_buffer(chain_graph().build(), "act.y", shape=("rows", 8)),
        "shape",
        "expected T to be tokens, got rows",
    ),
    "symbol against a number": (
        with_buffer(chain_graph().build(), "act.y", shape=(16, 8)),
        "shape",
        "expected T to be tokens, got 16",
    ),
    "arithmetic on a symbol": (
        with_buffer(example_node(Op.VERIFY_K), "in.draft", shape=("sequences", "tokens")),
        "shape",
        "cannot do arithmetic on a symbol: tokens and 1",
    ),
    "rank": (
        with_buffer(chain_graph().build(), "act.y", shape=("tokens",)),
        "shape",
        r"expected 2 dimensions \[T, N\]",
    ),
    "further dimensions": (
        with_buffer(example_node(Op.SWIGLU), "in.up", shape=("tokens", 2, 49)),
        "shape",
        r"further dimensions to be \[2, 48\], got \[2, 49\]",
    ),
    "condition": (norm_graph(size=3), "condition", "K % size == 0 does not hold: size=3, K=8"),
    "division by zero": (norm_graph(size=0), "condition", "8 divided by zero"),
    "in-place elsewhere": (
        kv_graph_with_two_caches(),
        "in-place",
        r"kv_k_out updates kv_k, so both are state.kv_k\[0\], not state.kv_k\[1\]",
    ),
    "write to a weight": (copy_graph("weight"), "write-to-read-only", "writes act.z, a weight buffer"),
    "write to a constant": (copy_graph("constant"), "write-to-read-only", "a constant buffer"),
    "write to the step block": (copy_graph("step"), "write-to-read-only", "a step buffer"),
    "read before write": (
        with_node(copy_graph("activation"), 0, inputs=("act.z", ABSENT)),
        "read-before-write",
        "reads act.z, which nothing wrote before",
    ),
    "output read before write": (
        with_node(copy_graph("output"), 0, inputs=("act.z", ABSENT)),
        "read-before-write",
        "reads act.z",
    ),
    "two writers": (
        add_node(chain_graph(), Node(Op.SCALE, ("step.x", ABSENT), ("act.y",))),
        "second-writer",
        "act.y is already written by node 0",
    ),
    "overwrites its own input": (
        add_node(chain_graph(), Node(Op.SCALE, ("act.y", ABSENT), ("act.y",))),
        "aliased-operand",
        "act.y is read and written, and not declared in place",
    ),
    "two outputs in one": (
        with_node(example_node(Op.SWIGLU), op=Op.RESIDUAL_RMS_NORM, outputs=("act.y", "act.y")),
        "aliased-operand",
        "act.y is two outputs at once",
    ),
    "updated and read at once": (
        with_node(kv_graph(barrier=()), inputs=("state.kv_k[0]", *kv_graph().nodes[0].inputs[1:])),
        "aliased-operand",
        "updated in place and read by another operand",
    ),
    "unused activation": (
        with_node(copy_graph("activation"), 1, op=Op.BARRIER, inputs=(), outputs=()),
        "dangling-buffer",
        "act.z: dangling-buffer: an activation that no node uses",
    ),
    "unwritten output": (
        with_node(copy_graph("output"), 1, op=Op.BARRIER, inputs=(), outputs=()),
        "dangling-buffer",
        "an output that no node writes",
    ),
    "no barrier": (
        kv_graph(),
        "missing-barrier",
        r"node 1 FLASH_ATTN act.out: missing-barrier: uses state.kv_k\[0\], updated in place by node 0",
    ),
    "barrier for half": (kv_graph(barrier=("state.kv_k[0]",)), "missing-barrier", r"uses state.kv_v\[0\]"),
    "second update without barrier": (kv_graph(readers="write"), "missing-barrier", "node 1 KV_WRITE_BATCHED"),
    "barrier before the second update only": (
        kv_graph(barrier=(), readers="write"),
        "missing-barrier",
        "by node 2",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_violation_reports_the_node_and_the_actual_value(case):
    graph, rule, message = BROKEN[case]
    with pytest.raises(VerifyError, match=message) as caught:
        verify_graph(graph)
    assert rule in {violation.rule for violation in caught.value.violations}


@pytest.mark.parametrize(
    "graph",
    [
        chain_graph().build(),
        norm_graph(),
        kv_graph(barrier=()),
        kv_graph(barrier=("state.kv_k[0]", "state.kv_v[0]")),
        kv_graph(readers="read-before"),  # write after read: plain dataflow, no barrier
        copy_graph("activation"),
        copy_graph("output"),
        copy_graph("state"),
    ],
)
def test_valid_graph_passes_silently(graph):
    verify_graph(graph)


def test_host_read_ring_is_updated_without_a_prior_write():
    graph = with_buffer(example_node(Op.STREAM_OUT), "in.ring", role="output")
    verify_graph(with_buffer(graph, "in.cursor", role="output"))


def test_table_persists_like_state_and_needs_a_barrier_after_store():
    store = with_buffer(example_node(Op.TABLE_STORE), "in.table", role="table")
    verify_graph(store)
    load = Node(Op.LOAD_REQUEST_STATE, ("in.table", "step.slot"), ("act.row",))
    buffers = {
        **store.buffers,
        "step.slot": BufferSpec("step.slot", ("sequences",), "i32", "step"),
        "act.row": BufferSpec("act.row", ("sequences", 5), "i32", "activation"),
    }
    with pytest.raises(VerifyError, match="missing-barrier"):
        verify_graph(replace(store, buffers=buffers, nodes=(*store.nodes, load)))
    verify_graph(replace(store, buffers=buffers, nodes=(*store.nodes, Node(Op.BARRIER, ("in.table",), ()), load)))


def test_optional_trailing_output_may_be_missing():
    graph = example_node(Op.ARGMAX)
    verify_graph(graph)
    short = with_node(graph, outputs=graph.nodes[0].outputs[:1])
    verify_graph(
        replace(short, buffers={name: spec for name, spec in short.buffers.items() if "nonfinite" not in name})
    )
    with pytest.raises(VerifyError, match="expected 2 outputs"):
        verify_graph(with_node(graph, outputs=()))


def test_every_finding_is_listed_with_its_node():
    graph = with_node(copy_graph("step"), 0, inputs=("act.missing", ABSENT), layer=-3)
    with pytest.raises(VerifyError) as caught:
        verify_graph(graph)
    assert [(f.node, f.rule) for f in caught.value.violations] == [
        (0, "layer"),
        (0, "undeclared-buffer"),
        (1, "write-to-read-only"),
    ]
    assert str(caught.value).startswith("graph chain: 3 findings\n  node 0 SCALE layer -3 y-1: layer: ")


def test_long_list_is_truncated_but_counted():
    graph = chain_graph().build()
    bad = Node(Op.SCALE, ("act.none", ABSENT), ())
    with pytest.raises(VerifyError, match="and 40 more") as caught:
        verify_graph(replace(graph, nodes=(*graph.nodes, *[bad] * 30)))
    assert len(caught.value.violations) == 60
