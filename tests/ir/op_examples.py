"""A smallest good graph for every opcode, made from the opcode table itself."""

from __future__ import annotations

from zinc_rt.ir.graph import ABSENT, Builder, Dim, OpGraph, Role, Shape
from zinc_rt.ir.op import OPS, Attr, Op, Port
from zinc_rt.ir.shapes import REST, Value, evaluate

# What a name in a shape pattern stands for; anything else is 64.
DIMS: dict[str, Dim] = {
    "T": "tokens",
    "S": "sequences",
    "L": "rows",
    "Q": 256,
    "K": 128,
    "V": 128,
    "E": 8,
    "R": 16,
    "one": 1,
    "two": 2,
    "four": 4,
    "words": 64,
    "slots": 3,
    "pages": 5,
    "ctx": 80,
    "kv_rows": 80,
}
OF_OP: dict[Op, dict[str, Dim]] = {
    **{op: {"head_dim": 64} for op in (Op.RMS_NORM_FUSED_ROPE_KV_WRITE, Op.QKV_FUSED_ROPE_KV_WRITE)},
    Op.VERIFY_K: {"K": 4},
    Op.TABLE_STORE: {"E": "entries"},
    **{
        op: {"K": 4}
        for op in (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS, Op.MATMUL_FUSED_CONV1D_IDS)
    },
}
ATTRS: dict[str, int] = {
    "heads": 4,
    "kv_heads": 2,
    "k_heads": 2,
    "v_heads": 4,
    "head_dim": 64,
    "value_dim": 32,
    "nope": 32,
    "rope": 16,
    "latent": 96,
    "size": 32,
    "group": 64,
    "offset": 16,
    "k": 2,
}
REST_DIMS: Shape = (2, 48)


def attr_value(attr: Attr) -> int | float | bool | str:
    if attr.choices:
        return attr.choices[0]  # type: ignore[return-value]
    if attr.type is int:
        return ATTRS.get(attr.name, 1) if attr.default is None else attr.default  # type: ignore[return-value]
    return {float: 0.5, bool: True, str: "x"}[attr.type]  # type: ignore[return-value]


def shape_of(op: Op, port: Port, names: dict[str, Value]) -> Shape:
    dims: list[Dim] = []
    for part in port.shape:
        if part == REST:
            dims += REST_DIMS
            continue
        if part.isidentifier():
            names.setdefault(part, OF_OP.get(op, {}).get(part, DIMS.get(part, 64)))
        dims.append(evaluate(part, names))
    return tuple(dims)


def example_node(op: Op, *, optional: bool = True) -> OpGraph:
    """One node of `op`: weights from the file, in-place operands in state, everything else from the step block."""
    spec = OPS[op]
    g = Builder(f"example-{op.name.lower()}")
    attrs = {attr.name: attr_value(attr) for attr in spec.attrs if optional or attr.default is None}
    names: dict[str, Value] = {a.name: attr_value(a) for a in spec.attrs if a.type is int}
    updated = {port.inplace for port in spec.outputs}
    inputs = []
    for port in spec.inputs:
        if port.optional and not optional:
            inputs.append(ABSENT)
            continue
        role: Role = "weight" if port.kind == "weight" else "state" if port.name in updated else "step"
        dtype = "i32" if port.kind == "index" else "f32"
        inputs.append(g.buffer(f"in.{port.name.lower()}", shape_of(op, port, names), dtype, role))
    outputs = []
    for port in spec.outputs:
        if port.inplace:
            outputs.append(f"in.{port.inplace}")
        else:
            dtype = "i32" if port.kind == "index" else "f32"
            outputs.append(g.buffer(f"act.{port.name.lower()}", shape_of(op, port, names), dtype, "activation"))
    g.node(op, tuple(inputs), tuple(outputs), layer=0, label=f"{op.name.lower()}-0", **attrs)
    return g.build()
