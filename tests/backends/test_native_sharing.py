"""What nodes have in common is computed once, and stays where it is until the last of them has read it."""

from __future__ import annotations

from zinc_rt.backends.cpu.sharing import NativeStep, share
from zinc_rt.ir.graph import Builder, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.launch import Launch, Ref, Temp
from zinc_rt.lower.dispatch_plan import Dispatch, DispatchPlan
from zinc_rt.lower.lowered_graph import Barrier

BLOCK = 4096


def graph() -> OpGraph:
    return Builder("empty").build()


def node(name: str) -> Node:
    return Node(Op.MATMUL, ("x",), (name,))


def quantise(x: str, of: Node) -> Dispatch:
    temp = Temp(f"q8_32:{x}", 256)
    return Dispatch(of, Launch("quantise32", (Ref(x), temp), (32,)), {temp.name: 0}, 0, (1, 1, 1))


def project(x: str, of: Node) -> Dispatch:
    temp = Temp(f"q8_32:{x}", 256)
    return Dispatch(of, Launch("matvec", (temp, Ref(of.outputs[0]))), {temp.name: 0}, 0, (1, 1, 1))


def plan(*steps: Dispatch | Barrier) -> DispatchPlan:
    return DispatchPlan("test", steps, (), 0, 0, 0, BLOCK)


def kernels(steps: list[NativeStep]) -> list[str]:
    return [f"{'| ' * step.barrier}{step.dispatch.launch.kernel}" for step in steps]


def test_three_projections_of_one_input_quantise_it_once() -> None:
    q, k, v = (node(name) for name in "qkv")
    parts = [step for item in (q, k, v) for step in (quantise("x", item), Barrier(()), project("x", item))]
    steps, size_bytes = share(plan(*parts), graph())
    assert kernels(steps) == ["quantise32", "| matvec", "matvec", "matvec"]
    assert len({step.dispatch.temps["q8_32:x"] for step in steps}) == 1
    assert steps[0].dispatch.temps["q8_32:x"] >= BLOCK and size_bytes == BLOCK + 256


def test_barrier_before_a_removed_step_is_kept() -> None:
    a, b = node("a"), node("b")
    parts = (quantise("x", a), Barrier(()), project("x", a), Barrier(("y",)), quantise("x", b), Barrier(()))
    steps, _ = share(plan(*parts, project("x", b)), graph())
    assert kernels(steps) == ["quantise32", "| matvec", "| matvec"]


def test_simultaneously_live_temporaries_do_not_overlap() -> None:
    a, b, c, d = (node(name) for name in "abcd")
    parts = [
        *(quantise("x", a), Barrier(()), project("x", a)),
        *(quantise("y", b), Barrier(()), project("y", b)),
        Barrier(()),
        *(quantise("x", c), Barrier(()), project("x", c)),
        *(quantise("z", d), Barrier(()), project("z", d)),
    ]
    steps, _ = share(plan(*parts), graph())
    where = {}
    for step in steps:
        where.update(step.dispatch.temps)
    assert kernels(steps) == [
        *("quantise32", "| matvec", "quantise32", "| matvec"),
        *("| matvec", "quantise32", "| matvec"),
    ]
    assert len({where[f"q8_32:{x}"] for x in "xy"}) == 2
    assert where["q8_32:z"] != where["q8_32:x"]  # x is still read when z may be written


def test_other_inputs_or_constants_are_not_shared() -> None:
    a, b = node("a"), node("b")
    other = Dispatch(b, Launch("quantise32", (Ref("x"), Temp("t", 256)), (64,)), {"t": 0}, 0, (1, 1, 1))
    steps, _ = share(plan(quantise("x", a), other), graph())
    assert kernels(steps) == ["quantise32", "quantise32"]


def test_buffer_a_node_updates_in_place_is_never_shared() -> None:
    builder = Builder("in place")
    for name in ("value", "table", "out"):
        builder.buffer(name, (4,), "f32", "state")
    builder.node(Op.STORE_REQUEST_STATE, ("value", "slot", "table"), ("out",))
    a, b = node("a"), node("b")
    steps, _ = share(plan(quantise("table", a), quantise("table", b)), builder.build())
    assert kernels(steps) == ["quantise32", "quantise32"]


def test_node_temporaries_are_not_shared() -> None:
    a, b = node("a"), node("b")

    def of_normed(node: Node) -> Dispatch:
        normed, result = Temp("normed", 256), Temp("q8_32:normed", 256)
        return Dispatch(
            node, Launch("quantise32", (normed, result), (32,)), {"normed": 0, result.name: 256}, 0, (1, 1, 1)
        )

    steps, _ = share(plan(of_normed(a), of_normed(b)), graph())
    assert kernels(steps) == ["quantise32", "quantise32"]
