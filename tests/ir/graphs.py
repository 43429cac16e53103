"""Graphs to write and read back."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from zinc_rt.ir.graph import ABSENT, SYMBOLS, Builder, OpGraph, Role
from zinc_rt.ir.op import Op

INTS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(
    INTS, st.booleans(), st.floats(allow_nan=False), st.text(st.characters(exclude_categories=["Cs"]))
)
NAMES = st.from_regex(
    r"[a-z_][a-z0-9_]{0,5}(\[[a-z0-9_]{1,3}\])?(\.[a-z_][a-z0-9_]{0,3}(\[[0-9]{1,2}\])?)?", fullmatch=True
)
WORDS = st.sampled_from(["eps", "size", "layer", "label", "buffer", "e1", "inf_", "graph"])


@st.composite
def any_graphs(draw: st.DrawFn) -> OpGraph:
    """Generate any well-formed graph, meaningful or not, because the forms must not depend on that."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    g = Builder(draw(text), draw(st.sampled_from(["prefill", "decode", "both"])))
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    dims = st.one_of(st.integers(0, 2**63 - 1), st.sampled_from(SYMBOLS))
    for name in names:
        shape = tuple(draw(st.lists(dims, max_size=3)))
        role = draw(st.sampled_from(get_args(Role)))
        g.buffer(name, shape, draw(st.sampled_from(["f32", "q8_0", "i32", "iq2_xxs"])), role)
    operands = st.lists(st.sampled_from([ABSENT, *names]), max_size=4).map(tuple)
    for _ in range(draw(st.integers(0, 5))):
        g.node(
            draw(st.sampled_from(Op)),
            draw(operands),
            draw(operands),
            layer=draw(st.one_of(st.none(), st.integers(0, 99))),
            label=draw(text),
        )
        object.__setattr__(g._nodes[-1], "attrs", draw(st.dictionaries(WORDS, VALUES, max_size=3)))
    return g.build()


def is_same(a: OpGraph, b: OpGraph) -> bool:
    """Check that values are equal, in the same order and of the same types: 1, 1.0 and True differ, as do 0.0 and
    -0.0.
    """
    return (
        a == b
        and list(a.buffers) == list(b.buffers)
        and [list(map(repr, n.attrs.items())) for n in a.nodes]
        == [list(map(repr, n.attrs.items())) for n in b.nodes]
    )
