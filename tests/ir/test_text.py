from __future__ import annotations

import pytest
from graphs import any_graphs, is_same
from hypothesis import given
from hypothesis import strategies as st
from ir_text_reader import parse_text
from op_examples import example_node

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import ABSENT, Builder, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.ir.text import to_text
from zinc_rt.ir.verify import verify_graph

TINY = """\
zinc-rt-ir 1
graph "tiny" decode
buffer request[slot].token_id [tokens] i32 step
buffer model.embed_table [32, 64] q8_0 weight
buffer act.embd [tokens, 64] f32 activation
buffer act.norm [tokens, 64] f32 activation

act.embd = EMBED(request[slot].token_id, model.embed_table) label "embd"
# heads of 16
act.norm = RMS_NORM(act.embd, -, -) {eps=1e-06, size=16} layer 0 label "attn_norm-0"
BARRIER()
"""


def tiny_graph() -> OpGraph:
    g = Builder("tiny", "decode")
    token = g.buffer("request[slot].token_id", ("tokens",), "i32", "step")
    table = g.buffer("model.embed_table", (32, 64), "q8_0", "weight")
    embd = g.buffer("act.embd", ("tokens", 64), "f32", "activation")
    norm = g.buffer("act.norm", ("tokens", 64), "f32", "activation")
    g.node(Op.EMBED, (token, table), (embd,), label="embd")
    g.node(Op.RMS_NORM, (embd, ABSENT), (norm,), layer=0, label="attn_norm-0", eps=1e-6, size=16)
    g.node(Op.BARRIER, (), ())
    return g.build()


def test_text_round_trips():
    graph = parse_text(TINY)
    assert is_same(graph, tiny_graph())
    verify_graph(graph)
    assert to_text(graph) == "".join(f"{line}\n" for line in TINY.splitlines() if line and line[0] != "#")


@pytest.mark.parametrize("op", list(OPS))
def test_every_opcode_round_trips(op):
    assert is_same(parse_text(to_text(example_node(op))), example_node(op))


@given(any_graphs())
def test_any_graph_round_trips(graph):
    try:
        text = to_text(graph)
    except InputError as error:
        assert "inf" in str(error) or "nan" in str(error)  # the two words a symbol or dtype cannot be
        return
    assert is_same(parse_text(text), graph)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 5e-324, -0.0, 1e16, 0.1, 2.0, 2, -(2**63), True])
def test_number_keeps_type_and_value(value):
    graph = OpGraph("g", "both", {}, (Node(Op.BARRIER, (), (), {"x": value}),))
    assert is_same(parse_text(to_text(graph)), graph)


def replace_line(line: int, text: str) -> str:
    lines = TINY.split("\n")
    lines[line - 1] = text
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (1, "zinc-rt-ir 2", "expected 'zinc-rt-ir 1', saw 'zinc-rt-ir 2'"),
        (2, "graph tiny decode", "expected the graph's name in quotes, saw 'tiny'"),
        (2, 'graph "tiny" later', "expected a stage, one of prefill, decode, both, saw 'later'"),
        (2, 'graph "\\q" both', "is not a JSON string"),
        (3, "buffer Big.Name [tokens] i32 step", "'Big.Name' is not a buffer name"),
        (3, "buffer a [tokens 4] i32 step", "expected ',', saw '4'"),
        (3, "buffer a [tokens, 4 i32 step", "expected ',', saw 'i32'"),
        (3, "buffer a [4] i32 scratch", "expected a role, one of"),
        (3, "buffer a [4] i32 step 3", "expected the end of the line, saw '3'"),
        (3, "buffer a [99999999999999999999] i32 step", "is longer than 64 bits"),
        (3, "buffer a [4]", "expected a dtype, saw 'end of line'"),
        (4, "buffer request[slot].token_id [4] i32 step", r"request\[slot\].token_id is already declared"),
        (8, "act.embd = EMBEDD(a, b)", "unknown opcode 'EMBEDD'"),
        (8, "act.embd = EMBED", "saw 'act.embd'"),
        (8, "act.embd EMBED(a)", "unknown opcode 'act.embd'"),
        (8, "act.embd = EMBED(a, b", "expected '\\)', saw 'end of line'"),
        (8, "act.embd = EMBED(a, )", "expected a buffer name, saw '\\)'"),
        (8, "act.embd = EMBED(a) {eps}", "expected '=', saw '}'"),
        (8, "act.embd = EMBED(a) {eps=1, eps=2}", "attribute eps is given twice"),
        (8, "act.embd = EMBED(a) {eps=maybe}", "expected a number, a string, true or false, saw 'maybe'"),
        (8, "act.embd = EMBED(a) {eps=1e999}", "1e999 is beyond a double"),
        (8, "act.embd = EMBED(a) layer one", "expected a layer number, saw 'one'"),
        (8, "act.embd = EMBED(a) label one", "expected a label in quotes, saw 'one'"),
        (8, 'act.embd = EMBED(a) label "one', "cannot read"),
        (8, "act.embd = EMBED(a) !", "column 20: cannot read"),
        (8, "hello", "expected 'buffer', or an opcode"),
    ],
)
def test_error_names_its_line(line, text, message):
    with pytest.raises(InputError, match=f"tiny.txt, line {line}: .*{message}"):
        parse_text(replace_line(line, text), name="tiny.txt")


@pytest.mark.parametrize("text", ["", "\n\n", "zinc-rt-ir 1\n# nothing\n"])
def test_empty_text_is_rejected(text):
    with pytest.raises(InputError, match="ends without"):
        parse_text(text)


@given(st.integers(0, len(TINY) - 1), st.text(max_size=3), st.integers(0, 6))
def test_random_edits_never_crash_the_parser(at, insert, cut):
    try:
        parse_text(TINY[:at] + insert + TINY[at + cut :])
    except InputError as error:
        assert "line" in str(error)
