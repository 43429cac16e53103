"""Sampling on the device: append the nodes that draw tokens to a model's graph, from its rows of logits and each
row's slot record, and that deliver them by the output ring."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.dtypes import ACTIVATION, INDEX
from zinc_rt.ir.graph import ABSENT, Builder, Dim, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.ring_entry import COLUMNS as ENTRY_COLUMNS
from zinc_rt.ir.slot_record import COLUMNS
from zinc_rt.ir.verify import verify_graph

LOGITS = "request[slot].logits"
TOKEN = "request[slot].next_token"  # the most likely one, of the model's own ARGMAX
RECORD_TABLE = "slots.record"
KEPT_LOGITS = "slots.logits"  # of each slot's row, in forms with masks: a late mask draws from it
COUNTS = "state.token_counts"
DRAWN = "sample.token"
BIASES = 300  # maximum number of biased ids per request
DELIVERED = RING, CURSOR = "sample.ring", "sample.cursor"  # what the host reads after a step
RING_ENTRIES = 1024  # a power of two


@dataclass(frozen=True, slots=True)
class SampleForm:
    """The form of the sampling nodes. `greedy`: every row is assigned its most likely token, and the other fields
    except `slots` have no effect. `draft_rows`: rows of a step in addition to one for each slot. `top`: the number
    of alternatives with log-probabilities, in addition to the token's; None: no log-probabilities."""

    vocab: int
    slots: int
    penalty_rows: int = 1
    bias_rows: int = 0
    mask_rows: int = 0
    top: int | None = None
    ends: int = 1
    draft_rows: int = 0
    greedy: bool = False

    @property
    def name(self) -> str:
        if self.greedy:
            return "greedy"
        parts = (
            *("bias" * bool(self.bias_rows), f"mask{self.mask_rows}" * bool(self.mask_rows)),
            "" if self.top is None else f"top{self.top}",
        )
        return "-".join(("sample", *filter(None, parts)))


def add_sampling(forward: OpGraph, form: SampleForm) -> OpGraph:
    """Return the verified graph of a step that delivers tokens: `forward`, which writes `LOGITS` and `TOKEN`, and
    the nodes that sample and deliver.

    The records of the step's sequences are in its step block; the first dispatch stores them. With masks, each
    row's logits are kept in `KEPT_LOGITS` for `build_late_draw_graph`: in its slot's row, or in one after those of
    the slots if it is a draft's.
    """
    builder = Builder(f"{forward.name}-{form.name}", forward.stage)
    for spec in forward.buffers.values():
        builder.buffer(spec.name, spec.shape, spec.dtype, spec.role)
    record = _add_records(builder, form, "sequences")
    for node in forward.nodes:
        builder.node(node.op, node.inputs, node.outputs, layer=node.layer, label=node.label, **node.attrs)
    if form.mask_rows:
        kept = _add_kept_logits(builder, form)
        row = builder.buffer("sample.kept_row" if form.draft_rows else "sample.row_slot", ("rows",), INDEX, "step")
        builder.node(Op.STORE_REQUEST_STATE, (LOGITS, row, kept), (kept,), label="kept_logits")
    builder.node(Op.BARRIER, (record,), ())
    return _add_delivery(builder, TOKEN) if form.greedy else _add_draw(builder, form, LOGITS)


def build_late_draw_graph(form: SampleForm) -> OpGraph:
    """Return the verified graph that samples rows from logits stored by a step, with their current records."""
    builder = Builder(f"late-{form.name}")
    builder.buffer("step.counts", (8,), INDEX, "step")
    record = _add_records(builder, form, "rows")
    row_slot = builder.buffer("sample.row_slot", ("rows",), INDEX, "step")
    logits = builder.buffer("sample.logits", ("rows", form.vocab), ACTIVATION, "activation")
    builder.node(
        Op.LOAD_REQUEST_STATE, (_add_kept_logits(builder, form), row_slot), (logits,), label="kept_logits"
    )
    builder.node(Op.BARRIER, (record,), ())
    return _add_draw(builder, form, logits)


def _add_records(builder: Builder, form: SampleForm, count: Dim) -> str:
    """Store the records of the step block, one for each sequence or row, in the table of all slots. The caller
    adds a barrier."""
    record = builder.buffer(RECORD_TABLE, (form.slots, COLUMNS), INDEX, "table")
    argument = (
        builder.buffer("sample.record", (count, COLUMNS), INDEX, "step"),
        builder.buffer("sample.record_slot", (count,), INDEX, "step"),
    )
    builder.node(Op.STORE_REQUEST_STATE, (*argument, record), (record,), label="record")
    return record


def _add_kept_logits(builder: Builder, form: SampleForm) -> str:
    return builder.buffer(KEPT_LOGITS, (form.slots + form.draft_rows, form.vocab), ACTIVATION, "state")


def _add_draw(builder: Builder, form: SampleForm, logits: str) -> OpGraph:
    """Add the nodes that sample and deliver a token for each row of `logits`, and return the verified graph."""

    def step(name: str, *shape: Dim, dtype: str = INDEX) -> str:
        return builder.buffer(name, shape, dtype, "step")

    def declare_output(name: str, *shape: Dim, dtype: str = INDEX) -> str:
        return builder.buffer(name, shape, dtype, "output")

    counts = builder.buffer(COUNTS, (form.penalty_rows, form.vocab), INDEX, "table")
    of_slots = step("sample.row_slot", "rows"), step("sample.position", "rows"), RECORD_TABLE, counts
    end = step("sample.end_id", form.ends)
    bias, mask = (ABSENT, ABSENT), (ABSENT, ABSENT)
    if form.bias_rows:
        sizes = (form.bias_rows, BIASES)
        bias = step("sample.bias_id", *sizes), step("sample.bias_value", *sizes, dtype=ACTIVATION)
    if form.mask_rows:
        mask = step("sample.mask", form.mask_rows, -(-form.vocab // 32)), step("sample.mask_row", "rows")
    adjusted = builder.buffer("sample.adjusted", ("rows", form.vocab), ACTIVATION, "activation")
    builder.node(Op.LOGITS_ADJUST, (logits, *of_slots, end, *bias, *mask), (adjusted,), label="logits_adjusted")
    token = declare_output(DRAWN, "rows")
    builder.node(Op.SAMPLE_SLOTS, (adjusted, *of_slots), (token, counts), label="token")
    if form.top is not None:
        outputs = [declare_output("sample.logprob", "rows", dtype=ACTIVATION)]
        if form.top:
            outputs.append(declare_output("sample.top_id", "rows", form.top))
            outputs.append(declare_output("sample.top_logprob", "rows", form.top, dtype=ACTIVATION))
        builder.node(Op.LOGPROBS, (logits, token), tuple(outputs), label="logprob", top=form.top)
    return _add_delivery(builder, token)


def _add_delivery(builder: Builder, token: str) -> OpGraph:
    """Append each row's token to the output ring, and return the verified graph. The ring's tables are shared by
    all variants, and the host maps them."""
    of_rows = (builder.buffer(f"sample.{name}", ("rows",), INDEX, "step") for name in ("row_slot", "position"))
    ring = (
        builder.buffer(RING, (RING_ENTRIES, ENTRY_COLUMNS), INDEX, "table"),
        builder.buffer(CURSOR, (1,), INDEX, "table"),
    )
    builder.node(Op.STREAM_OUT, (token, *of_rows, RECORD_TABLE, *ring), ring, label="stream_out")
    graph = builder.build()
    verify_graph(graph)
    return graph
