"""Build a graph that copies rows of a model's state: keys and values of a forked page, or a recurrent state."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.ir.dtypes import INDEX
from zinc_rt.ir.graph import Builder, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.ir.verify import verify_graph


def list_caches(forward: OpGraph, page_table: str) -> tuple[str, ...]:
    """Return the caches that a model's graph accesses through a page table, in its order: those of one page
    group.
    """
    names: dict[str, None] = {}
    for node in forward.nodes:
        if page_table in node.inputs and node.op not in (Op.TABLE_STORE, Op.BARRIER):
            ports = zip(OPS[node.op].inputs, node.inputs, strict=True)
            names.update({name: None for port, name in ports if port.shape[0] == "kv_rows"})
    return tuple(names)


def list_states(forward: OpGraph) -> tuple[str, ...]:
    """Return the recurrent states of a model's graph: state buffers that are not accessed through a page table."""
    paged = {name for table in forward.by_role("table") for name in list_caches(forward, table.name)}
    return tuple(spec.name for spec in forward.by_role("state") if spec.name not in paged)


def build_copy_graph(forward: OpGraph, names: Iterable[str], *, name: str = "copy") -> OpGraph:
    """Return the verified copy graph for these buffers. It declares all state as `forward` does, so that every
    buffer has the same location."""
    builder = Builder(name)
    builder.buffer("step.counts", (8,), INDEX, "step")
    source = builder.buffer("copy.source", ("sequences",), INDEX, "step")
    target = builder.buffer("copy.target", ("sequences",), INDEX, "step")
    for spec in forward.by_role("state"):
        builder.buffer(spec.name, spec.shape, spec.dtype, spec.role)
    for number, item in enumerate(names):
        spec = forward.buffers[item]
        value = builder.buffer(f"copy.value[{number}]", ("sequences", *spec.shape[1:]), spec.dtype, "activation")
        builder.node(Op.LOAD_REQUEST_STATE, (item, source), (value,), label=f"load-{number}")
        builder.node(Op.STORE_REQUEST_STATE, (value, target, item), (item,), label=f"store-{number}")
    graph = builder.build()
    verify_graph(graph)
    return graph
