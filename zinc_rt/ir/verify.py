"""The verifier: checks a graph for all errors that can be detected before it runs on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

from zinc_rt.ir.dataflow import check_dataflow
from zinc_rt.ir.dtypes import ACTIVATION, CACHE_TYPES, INDEX, count_row_bytes, is_dtype
from zinc_rt.ir.graph import ABSENT, SYMBOLS, BufferSpec, Node, OpGraph, Role, Stage, is_buffer_name
from zinc_rt.ir.op import MAX_BINDINGS, OPS, Attr, Op, OpSpec, Port
from zinc_rt.ir.shapes import ShapeError, Value, evaluate, unify_shape
from zinc_rt.ir.violations import VerifyError, Violation, make_node_violation

__all__ = ["VerifyError", "Violation", "find_violations", "verify_graph"]


def verify_graph(graph: OpGraph) -> None:
    """Raise VerifyError with every violation unless the graph satisfies every rule."""
    problems = find_violations(graph)
    if problems:
        raise VerifyError(graph, problems)


def find_violations(graph: OpGraph) -> list[Violation]:
    """Return every violation: buffers first, then nodes in order, then dataflow."""
    problems: list[Violation] = []
    if graph.stage not in get_args(Stage):
        problems.append(Violation("stage", f"expected one of {', '.join(get_args(Stage))}, saw {graph.stage!r}"))
    for name, spec in graph.buffers.items():
        problems.extend(_check_buffer(name, spec))
    known = True
    for index, node in enumerate(graph.nodes):
        if node.op not in OPS:
            known = False
            problems.append(Violation("opcode", f"{node.op!r} has no row in the opcode table", index))
        else:
            problems.extend(make_node_violation(index, node, rule, saw) for rule, saw in _check_node(graph, node))
    if known:
        problems.extend(check_dataflow(graph))
    return problems


def _check_buffer(name: str, spec: BufferSpec) -> Iterator[Violation]:
    def make_violation(rule: str, saw: str) -> Violation:
        return Violation(rule, saw, where=name)

    if name != spec.name or not is_buffer_name(name):
        yield make_violation(
            "buffer-name", f"filed as {name!r}, calls itself {spec.name!r}; expected like state.kv_k[3]"
        )
    if spec.role not in get_args(Role):
        yield make_violation("role", f"expected one of {', '.join(get_args(Role))}, saw {spec.role!r}")
    bad = [dim for dim in spec.shape if dim not in SYMBOLS and not (type(dim) is int and dim > 0)]
    if bad:
        yield make_violation(
            "dimension", f"expected a positive int or one of {', '.join(SYMBOLS)}, saw {bad[0]!r}"
        )
    if not isinstance(spec.dtype, str) or not is_dtype(spec.dtype):
        yield make_violation("dtype", f"{spec.dtype!r} is no ggml type")
    elif spec.shape and type(spec.shape[-1]) is int:
        try:
            count_row_bytes(spec.dtype, spec.shape[-1])
        except ValueError as error:
            yield make_violation("whole-blocks", str(error))


def _check_node(graph: OpGraph, node: Node) -> Iterator[tuple[str, str]]:
    spec = OPS[node.op]
    yield from _check_attrs(spec, node)
    if node.layer is not None and (type(node.layer) is not int or node.layer < 0):
        yield "layer", f"expected a number from 0, or none, saw {node.layer!r}"
    operands = [name for name in (*node.inputs, *node.outputs) if name != ABSENT]
    for name in dict.fromkeys(operands):
        if name not in graph.buffers:
            yield "undeclared-buffer", f"{name} is declared nowhere"
    if len(set(operands)) > MAX_BINDINGS:
        yield "bindings", f"{len(set(operands))} buffers, at most {MAX_BINDINGS}: emit the unfused form"
    if spec.variadic:
        if node.op is Op.BARRIER and (ABSENT in node.inputs or node.outputs):
            yield "operand-count", "a barrier names buffers and writes none"
        return
    counted = True
    for kind, ports, names in (("inputs", spec.inputs, node.inputs), ("outputs", spec.outputs, node.outputs)):
        missing = ports[len(names) :]
        left_out = kind == "outputs" and missing and all(port.optional for port in missing)
        if len(ports) != len(names) and not left_out:
            counted = False
            listed = ", ".join(port.name for port in ports)
            yield "operand-count", f"expected {len(ports)} {kind} ({listed}), saw {len(names)}"
    if counted:
        yield from _check_operands(graph, spec, node)


def _check_attrs(spec: OpSpec, node: Node) -> Iterator[tuple[str, str]]:
    known = {attr.name: attr for attr in spec.attrs}
    for name in node.attrs:
        if name not in known:
            yield "attribute", f"{name} is not one of {', '.join(known) or 'none'}"
    for attr in spec.attrs:
        if attr.name not in node.attrs:
            if attr.default is None:
                yield "attribute", f"{attr.name} is required"
            continue
        problem = _check_attr(attr, node.attrs[attr.name])
        if problem:
            yield "attribute", f"{attr.name} {problem}"


def _check_attr(attr: Attr, value: object) -> str | None:
    if type(value) is not attr.type:
        return f"expected {attr.type.__name__}, saw {type(value).__name__} {value!r}"
    if attr.choices and value not in attr.choices:
        return f"expected one of {', '.join(map(str, attr.choices))}, saw {value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, saw {value!r}"
    return None


def _check_operands(graph: OpGraph, spec: OpSpec, node: Node) -> Iterator[tuple[str, str]]:
    """Check dtypes, roles, shapes and in-place pairs of a node whose operand counts are right."""
    names: dict[str, Value] = {}
    for attr in spec.attrs:
        value = node.attrs.get(attr.name, attr.default)
        if type(value) is int:
            names[attr.name] = value
    complete = True
    any_dtype: str | None = None
    for port, name in zip((*spec.inputs, *spec.outputs), (*node.inputs, *node.outputs), strict=False):
        if name == ABSENT:
            if not port.optional:
                complete = False
                yield "absent-operand", f"{port.name} is not optional"
            continue
        buffer = graph.buffers.get(name)
        if buffer is None:
            complete = False
            continue
        yield from _check_kind(port, buffer)
        if port.kind == "any":
            any_dtype = any_dtype or buffer.dtype
            if buffer.dtype != any_dtype:
                yield "dtype", f"{port.name} ({name}) is {buffer.dtype}, the operand before it {any_dtype}"
        try:
            unify_shape(port.shape, buffer.shape, names)
        except ShapeError as error:
            complete = False
            yield "shape", f"{port.name} ({name}): {error}"
    if complete:
        yield from _check_conditions(spec, names)
    yield from _check_in_place(spec, node)


def _check_kind(port: Port, buffer: BufferSpec) -> Iterator[tuple[str, str]]:
    expected = {"float": ACTIVATION, "index": INDEX}.get(port.kind)
    if expected is not None and buffer.dtype != expected:
        yield "dtype", f"{port.name} ({buffer.name}) needs {expected}, saw {buffer.dtype}"
    if port.kind == "cache" and buffer.dtype not in CACHE_TYPES:
        yield "dtype", f"{port.name} ({buffer.name}) needs one of {', '.join(CACHE_TYPES)}, saw {buffer.dtype}"
    fixed = buffer.role in ("weight", "constant")
    if port.kind == "weight" and not fixed:
        yield "role", f"{port.name} ({buffer.name}) needs a weight or constant, saw role {buffer.role}"
    if port.kind != "weight" and buffer.role == "weight":
        yield "role", f"{port.name} ({buffer.name}) takes no weight: only weight operands are read in file format"


def _check_conditions(spec: OpSpec, names: dict[str, Value]) -> Iterator[tuple[str, str]]:
    for condition in spec.require:
        try:
            holds = evaluate(condition, names)
        except ShapeError as error:
            yield "condition", f"{condition}: {error}"
            continue
        if holds is not True:
            values = ", ".join(f"{name}={value}" for name, value in names.items() if name in condition)
            yield "condition", f"{condition} does not hold: {values}"


def _check_in_place(spec: OpSpec, node: Node) -> Iterator[tuple[str, str]]:
    incoming = {port.name: name for port, name in zip(spec.inputs, node.inputs, strict=True)}
    for port, name in zip(spec.outputs, node.outputs, strict=False):
        if port.inplace is not None and incoming[port.inplace] != name:
            yield (
                "in-place",
                f"{port.name} updates {port.inplace}, so both are {incoming[port.inplace]}, not {name}",
            )
