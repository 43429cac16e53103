"""The graph behind the logits: from rows of them to tokens, each by the record of its row's slot.

It belongs to no model. Its replay follows that of a model's graph, whose logits it reads in place. To build it
over a variant `forward` with room for as many rows:

    graph = sample_graph(SampleForm(vocab, slots))
    replays = resident.graph(graph.name, graph)
    key = (1, max(2, slots), forward_rows)              # tokens, slots bound since the last replay, rows of logits
    variant = resident.build(graph, key, replays, given={LOGITS: forward.buffer(LOGITS)})
    block = StepBlock(variant)                          # views by the names below; write_step, submit, wait, read

Before a replay the host fills `step.counts` = (0, bound, rows, 0), and the views of the step block:

| buffer | |
|---|---|
| sample.bound_slot [bound], sample.bound_record [bound, 64] | records that changed: they are stored first |
| sample.row_slot, sample.position [rows] | whose row, and the absolute position of the token to be drawn |
| sample.entry [rows] | what the ring says of it: epoch << 10 or-ed with the slot |
| sample.end_id [ends] | the model's end tokens, the rest -1 |
| sample.bias_id, sample.bias_value [bias_rows, 300] | by the record's bias_row, ids ascending |
| sample.mask_row [rows], sample.mask [mask_rows, V / 32] | -1: no mask; bit id % 32 of dword id // 32: allowed |

`state.token_counts` [penalty_rows, V] is written once when a request with penalties is bound:
`variant.write(COUNTS, row, offset_bytes=4 * vocab * penalty_row)`, bit 31 for a token of the prompt, below it how
often it is in the output. Afterwards the device counts.
Read back: `sample.token` (-1: nothing to draw from), `sample.logprob`, `sample.top_id`, `sample.top_logprob`.
"""

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
    """What a sample graph has. `top`: log-probabilities of a token and of so many alternatives; None: of none.
    `bias_rows`, `mask_rows`: 0 leaves biases or masks out, and with them their part of the step block."""

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
    """The graph, verified."""
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
