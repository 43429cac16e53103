from __future__ import annotations

import pytest

from zinc_rt.ir.op import OPS
from zinc_rt.ir.shapes import ShapeError, evaluate, unify_shape

NAMES = {"heads": 4, "d": 64, "T": "tokens", "zero": 0}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("heads*d", 256),
        ("2*heads*d + d", 576),
        ("heads*(d + 1)", 260),
        ("d//heads - 1", 15),
        ("d % heads == 0", True),
        ("heads <= 3", False),
        ("heads != 3", True),
        ("T", "tokens"),
        ("T*1 + 0 - 0", "tokens"),
        ("0 + 1*T", "tokens"),
        ("T == T", True),
        ("T == 5", False),
    ],
)
def test_expression_evaluates_by_arithmetic_rules(expression, value):
    assert evaluate(expression, NAMES) == value


@pytest.mark.parametrize(
    "expression",
    [
        "T*2",
        "T + 1",
        "1 - T",
        "T % 1",
        "T <= 4",
        "d // zero",
        "d % zero",
        "nobody",
        "d / 2",
        "d ** 2",
        "__import__('os')",
        "d.real",
        "[d][0]",
        "lambda: d",
        "1 < d < 3",
        "True",
        "'tokens'",
        "1.5",
        "-d",
        "d +",
        "d in heads",
    ],
)
def test_invalid_expressions_have_no_value(expression):
    with pytest.raises(ShapeError):
        evaluate(expression, NAMES)


def test_name_binds_once_and_must_agree_afterwards():
    names = {"heads": 2}
    unify_shape(("T", "heads*D"), ("tokens", 2), {**names, "D": 1})
    unify_shape(("T", "D", "..."), ("tokens", 3, 4, 5), names)
    assert names == {"heads": 2, "T": "tokens", "D": 3, "...": (4, 5)}
    unify_shape(("...",), (4, 5), names)
    with pytest.raises(ShapeError, match=r"expected D to be 3, got 4 in \[4\]"):
        unify_shape(("D",), (4,), names)
    with pytest.raises(ShapeError, match=r"further dimensions to be \[4, 5\], got \[\]"):
        unify_shape(("T", "..."), ("tokens",), names)


def test_every_pattern_in_the_table_is_parsed():
    for spec in OPS.values():
        expressions = [part for port in (*spec.inputs, *spec.outputs) for part in port.shape if part != "..."]
        for expression in (*expressions, *spec.require):
            try:
                evaluate(expression, {})
            except ShapeError as error:
                assert "has no value" in str(error), (spec.op, expression)
