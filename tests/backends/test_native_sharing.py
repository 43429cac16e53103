"""What nodes have in common is computed once, and stays where it is until the last of them has read it."""

from __future__ import annotations

from zinc_rt.backends.cpu.sharing import NativeStep, share
from zinc_rt.ir.graph import Builder, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.launch import Launch, Ref, Temp
from zinc_rt.lower.dispatch_plan import Dispatch, DispatchPlan
from zinc_rt.lower.lowered_graph import Barrier

BLOCK = 4096


def empty_graph() -> OpGraph:
    return Builder("empty").build()


def make_matmul(name: str) -> Node:
    return Node(Op.MATMUL, ("x",), (name,))


def quantise_dispatch(x: str, node: Node) -> Dispatch:
    temp = Temp(f"q8_32:{x}", 256)
    return Dispatch(node, Launch("quantise32", (Ref(x), temp), (32,)), {temp.name: 0}, 0, (1, 1, 1))


def project_dispatch(x: str, node: Node) -> Dispatch:
    temp = Temp(f"q8_32:{x}", 256)
    return Dispatch(node, Launch("matvec", (temp, Ref(node.outputs[0]))), {temp.name: 0}, 0, (1, 1, 1))


def make_plan(*steps: Dispatch | Barrier) -> DispatchPlan:
    return DispatchPlan("test", steps, (), 0, 0, 0, BLOCK)


def kernel_names(steps: list[NativeStep]) -> list[str]:
    return [f"{'| ' * step.barrier}{step.dispatch.launch.kernel}" for step in steps]


def test_three_projections_of_one_input_quantise_it_once() -> None:
    q, k, v = (make_matmul(name) for name in "qkv")
    parts = [
        step
        for item in (q, k, v)
        for step in (quantise_dispatch("x", item), Barrier(()), project_dispatch("x", item))
    ]
    steps, size_bytes = share(make_plan(*parts), empty_graph())
    assert kernel_names(steps) == ["quantise32", "| matvec", "matvec", "matvec"]
    assert len({step.dispatch.temps["q8_32:x"] for step in steps}) == 1
    assert steps[0].dispatch.temps["q8_32:x"] >= BLOCK and size_bytes == BLOCK + 256


def test_barrier_before_a_removed_step_is_kept() -> None:
    a, b = make_matmul("a"), make_matmul("b")
    parts = (
        quantise_dispatch("x", a),
        Barrier(()),
        project_dispatch("x", a),
        Barrier(("y",)),
        quantise_dispatch("x", b),
        Barrier(()),
    )
    steps, _ = share(make_plan(*parts, project_dispatch("x", b)), empty_graph())
    assert kernel_names(steps) == ["quantise32", "| matvec", "| matvec"]


def test_simultaneously_live_temporaries_do_not_overlap() -> None:
    a, b, c, d = (make_matmul(name) for name in "abcd")
    parts = [
        *(quantise_dispatch("x", a), Barrier(()), project_dispatch("x", a)),
        *(quantise_dispatch("y", b), Barrier(()), project_dispatch("y", b)),
        Barrier(()),
        *(quantise_dispatch("x", c), Barrier(()), project_dispatch("x", c)),
        *(quantise_dispatch("z", d), Barrier(()), project_dispatch("z", d)),
    ]
    steps, _ = share(make_plan(*parts), empty_graph())
    where = {}
    for step in steps:
        where.update(step.dispatch.temps)
    assert kernel_names(steps) == [
        *("quantise32", "| matvec", "quantise32", "| matvec"),
        *("| matvec", "quantise32", "| matvec"),
    ]
    assert len({where[f"q8_32:{x}"] for x in "xy"}) == 2
    assert where["q8_32:z"] != where["q8_32:x"]  # x is still read when z may be written


def test_other_inputs_or_constants_are_not_shared() -> None:
    a, b = make_matmul("a"), make_matmul("b")
    other = Dispatch(b, Launch("quantise32", (Ref("x"), Temp("t", 256)), (64,)), {"t": 0}, 0, (1, 1, 1))
    steps, _ = share(make_plan(quantise_dispatch("x", a), other), empty_graph())
    assert kernel_names(steps) == ["quantise32", "quantise32"]


def test_buffer_a_node_updates_in_place_is_never_shared() -> None:
    builder = Builder("in place")
    for name in ("value", "table", "out"):
        builder.buffer(name, (4,), "f32", "state")
    builder.node(Op.STORE_REQUEST_STATE, ("value", "slot", "table"), ("out",))
    a, b = make_matmul("a"), make_matmul("b")
    steps, _ = share(make_plan(quantise_dispatch("table", a), quantise_dispatch("table", b)), builder.build())
    assert kernel_names(steps) == ["quantise32", "quantise32"]


def test_node_temporaries_are_not_shared() -> None:
    a, b = make_matmul("a"), make_matmul("b")

    def rename_input(node: Node) -> Dispatch:
        normed, result = Temp("normed", 256), Temp("q8_32:normed", 256)
        return Dispatch(
            node, Launch("quantise32", (normed, result), (32,)), {"normed": 0, result.name: 256}, 0, (1, 1, 1)
        )

    steps, _ = share(make_plan(rename_input(a), rename_input(b)), empty_graph())
    assert kernel_names(steps) == ["quantise32", "quantise32"]
