"""State of recurrent mixers in the requested form: gathered by ids in the kernel, in place, or loaded and
stored."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import Shape
from zinc_rt.ir.op import Op
from zinc_rt.model.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class RecurrentForms:
    """One mixer's opcodes. If there is no fused form, the plain one loads and stores the state."""

    plain: Op
    inplace: Op | None = None
    ids: Op | None = None


CONV = RecurrentForms(Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
DELTA = RecurrentForms(Op.SSM_DELTA_NET, Op.SSM_DELTA_NET_INPLACE, Op.SSM_DELTA_NET_INPLACE_IDS)
SCAN = RecurrentForms(Op.SSM_SCAN)


def add_recurrent(
    m: ModelBuilder,
    forms: RecurrentForms,
    inputs: tuple[str, ...],
    state_name: str,
    state_shape: Shape,
    trailing: tuple[str, ...],
    columns: Shape,
    label: str,
    *,
    layer: int,
    **attrs: object,
) -> str:
    """Add one recurrent node over a state buffer [rows, *state_shape]; operands are (*inputs, state, sequence[,
    ids], *trailing). In the in-place form a sequence's row is its number in the step. In other forms the step
    defines the rows to read and to write, and row 0 is never written: it is the state of a new sequence."""
    sequence, source, target = m.sequences()
    op = {"ids": forms.ids, "inplace": forms.inplace, "plain": None}[m.delta_form]
    rows = m.limits.slots if op is not None and op is forms.inplace else m.limits.recurrent_rows
    state = m.state(state_name, layer, (rows, *state_shape))
    if op is not None:
        ids = (source, target) if m.delta_form == "ids" else ()
        out = m.declare_activation(label, columns)
        if ids:
            attrs["disjoint"] = True  # a row has one owner: the scheduler guarantees it
        m.node(op, (*inputs, state, sequence, *ids, *trailing), (out, state), label, **attrs)
        return out
    shape = m.shape(state)[1:]
    gathered = m.value(Op.LOAD_REQUEST_STATE, (state, source), shape, f"state_in_{label}", rows="sequences")
    out = m.declare_activation(label, columns)
    new = m.declare_activation(f"state_out_{label}", shape, rows="sequences")
    m.node(forms.plain, (*inputs, gathered, sequence, *trailing), (out, new), label, **attrs)
    m.node(Op.STORE_REQUEST_STATE, (new, target, state), (state,), f"state_store_{label}")
    return out
