"""Shape patterns: the dimension expressions of op.py, interpreted without evaluating code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache

from zinc_rt.ir.graph import Dim, Shape

REST = "..."
Value = Dim | Shape | bool  # a Shape only under REST

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_NEUTRAL_RIGHT: dict[type[ast.operator], int] = {ast.Add: 0, ast.Sub: 0, ast.Mult: 1, ast.FloorDiv: 1}
_NEUTRAL_LEFT: dict[type[ast.operator], int] = {ast.Add: 0, ast.Mult: 1}
_ORDER: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class ShapeError(ValueError):
    """Raised if a shape does not fit its pattern, or an expression has no value."""


def evaluate(expression: str, names: Mapping[str, Value]) -> Dim | bool:
    """Evaluate a dimension expression or condition. Raise ShapeError if it has no value."""
    return _evaluate_node(_parse_expression(expression), names)


@cache
def _parse_expression(expression: str) -> ast.expr:
    try:
        return ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise ShapeError(f"{expression!r} is not a dimension expression") from error


def _evaluate_node(node: ast.expr, names: Mapping[str, Value]) -> Dim | bool:
    match node:
        case ast.Constant(value=int() as number) if type(number) is int:
            return number
        case ast.Name(id=name):
            value = names.get(name)
            if value is None or isinstance(value, tuple):
                raise ShapeError(f"{name} has no value")
            return value
        case ast.BinOp(left=left, op=sign, right=right):
            return _apply_operator(sign, _evaluate_node(left, names), _evaluate_node(right, names))
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            return _compare(sign, _evaluate_node(left, names), _evaluate_node(right, names))
    raise ShapeError(f"{ast.unparse(node)!r} contains more than + - * // % and one comparison")


def _apply_operator(sign: ast.operator, left: Dim, right: Dim) -> Dim:
    apply = _ARITHMETIC.get(type(sign))
    if apply is None:
        raise ShapeError(f"{type(sign).__name__} is not allowed in a dimension expression")
    if isinstance(left, int) and isinstance(right, int):
        if right == 0 and isinstance(sign, ast.FloorDiv | ast.Mod):
            raise ShapeError(f"{left} divided by zero")
        return apply(left, right)
    if isinstance(left, str) and right == _NEUTRAL_RIGHT.get(type(sign)):
        return left
    if isinstance(right, str) and left == _NEUTRAL_LEFT.get(type(sign)):
        return right
    raise ShapeError(f"cannot do arithmetic on a symbol: {left} and {right}")


def _compare(sign: ast.cmpop, left: Dim, right: Dim) -> bool:
    if isinstance(sign, ast.Eq):
        return left == right
    if isinstance(sign, ast.NotEq):
        return left != right
    apply = _ORDER.get(type(sign))
    if apply is None:
        raise ShapeError(f"{type(sign).__name__} is not allowed in a condition")
    if isinstance(left, str) or isinstance(right, str):
        raise ShapeError(f"cannot compare the size of a symbol: {left} and {right}")
    return apply(left, right)


def unify_shape(pattern: tuple[str, ...], shape: Shape, names: dict[str, Value]) -> None:
    """Match a shape with a pattern, binding names not seen before. Raise ShapeError at the first difference."""
    exact = pattern[:-1] if pattern[-1:] == (REST,) else pattern
    if len(shape) < len(exact) or (exact is pattern and len(shape) != len(exact)):
        raise ShapeError(f"expected {len(exact)} dimensions {format_shape(pattern)}, got {format_shape(shape)}")
    for part, dim in zip(exact, shape, strict=False):
        if part.isidentifier() and part not in names:
            names[part] = dim
            continue
        expected = evaluate(part, names)
        if expected != dim:
            raise ShapeError(f"expected {part} to be {expected}, got {dim} in {format_shape(shape)}")
    if exact is not pattern:
        rest = shape[len(exact) :]
        if names.setdefault(REST, rest) != rest:
            raise ShapeError(
                f"expected the further dimensions to be {format_shape(names[REST])}, got {format_shape(rest)}"
            )


def format_shape(shape: object) -> str:
    return "[" + ", ".join(map(str, shape)) + "]" if isinstance(shape, tuple) else str(shape)
