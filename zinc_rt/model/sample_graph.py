"""The sample graph: from rows of logits to tokens, using each row's slot record."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.dtypes import ACTIVATION, INDEX
from zinc_rt.ir.graph import ABSENT, Builder, Dim, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import COLUMNS
from zinc_rt.ir.verify import verify

LOGITS = "request[slot].logits"  # another graph's output
RECORD_TABLE = "slots.record"
COUNTS = "state.token_counts"
BIASES = 300  # ids that a request may have a bias for
RING = 1024  # entries


@dataclass(frozen=True, slots=True)
class SampleForm:
    """The form of a sample graph. `top`: the number of alternatives with log-probabilities, in addition to the
    token's; None: no log-probabilities."""

    vocab: int
    slots: int
    penalty_rows: int = 1
    bias_rows: int = 0
    mask_rows: int = 0
    top: int | None = None
    ends: int = 1

    @property
    def name(self) -> str:
        parts = (
            *("bias" * bool(self.bias_rows), "mask" * bool(self.mask_rows)),
            "" if self.top is None else f"top{self.top}",
        )
        return "-".join(("sample", *filter(None, parts)))


def sample_graph(form: SampleForm) -> OpGraph:
    """Build the verified graph."""
    builder = Builder(form.name)

    def step(name: str, *shape: Dim, dtype: str = INDEX) -> str:
        return builder.buffer(name, shape, dtype, "step")

    def output(name: str, *shape: Dim, dtype: str = INDEX) -> str:
        return builder.buffer(name, shape, dtype, "output")

    step("step.counts", 8)
    record = builder.buffer(RECORD_TABLE, (form.slots, COLUMNS), INDEX, "table")
    bound = step("sample.bound_record", "sequences", COLUMNS), step("sample.bound_slot", "sequences")
    builder.node(Op.STORE_REQUEST_STATE, (*bound, record), (record,), label="bound")
    builder.node(Op.BARRIER, (record,), ())

    logits = builder.buffer(LOGITS, ("rows", form.vocab), ACTIVATION, "state")
    counts = builder.buffer(COUNTS, (form.penalty_rows, form.vocab), INDEX, "state")
    of_slots = step("sample.row_slot", "rows"), step("sample.position", "rows"), record, counts
    end = step("sample.end_id", form.ends)
    bias, mask = (ABSENT, ABSENT), (ABSENT, ABSENT)
    if form.bias_rows:
        sizes = (form.bias_rows, BIASES)
        bias = step("sample.bias_id", *sizes), step("sample.bias_value", *sizes, dtype=ACTIVATION)
    if form.mask_rows:
        mask = step("sample.mask", form.mask_rows, -(-form.vocab // 32)), step("sample.mask_row", "rows")
    adjusted = builder.buffer("sample.adjusted", ("rows", form.vocab), ACTIVATION, "activation")
    builder.node(Op.LOGITS_ADJUST, (logits, *of_slots, end, *bias, *mask), (adjusted,), label="logits_adjusted")
    token = output("sample.token", "rows")
    builder.node(Op.SAMPLE_SLOTS, (adjusted, *of_slots), (token, counts), label="token")
    if form.top is not None:
        made = [output("sample.logprob", "rows", dtype=ACTIVATION)]
        if form.top:
            made.append(output("sample.top_id", "rows", form.top))
            made.append(output("sample.top_logprob", "rows", form.top, dtype=ACTIVATION))
        builder.node(Op.LOGPROBS, (logits, token), tuple(made), label="logprob", top=form.top)
    ring = output("sample.ring", RING, 2), output("sample.cursor", 1)
    builder.node(Op.STREAM_OUT, (token, step("sample.entry", "rows"), *ring), ring, label="stream_out")
    graph = builder.build()
    verify(graph)
    return graph
