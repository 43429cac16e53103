"""Recurrent mixers' state, in the form asked for: gathered by ids in the kernel, in place, or loaded and stored.

All forms compute the same bits; they differ in who moves the state.
"""

from __future__ import annotations

from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.graph import Shape
from zinc_rt.ir.op import Op
from zinc_rt.model.emitter import Emitter

PLAIN, INPLACE, IDS = 0, 1, 2
CONV = (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
DELTA = (Op.SSM_DELTA_NET, Op.SSM_DELTA_NET_INPLACE, Op.SSM_DELTA_NET_INPLACE_IDS)
SCAN = (Op.SSM_SCAN, None, None)


def recurrent(
    e: Emitter,
    forms: tuple[Op, Op | None, Op | None],
    inputs: tuple[str, ...],
    state: str,
    trailing: tuple[str, ...],
    columns: Shape,
    label: str,
    **attrs: object,
) -> str:
    """One recurrent node over `state` [slots, ...]; operands are (*inputs, state, sequence[, ids], *trailing)."""
    sequence, source, target = e.sequences()
    wanted = {"ids": IDS, "inplace": INPLACE, "plain": PLAIN}[e.delta_form]
    op = forms[wanted]
    if op is None or wanted == PLAIN:
        return _plain(e, forms[PLAIN], inputs, state, trailing, columns, label, **attrs)
    ids = (source, target) if wanted == IDS else ()
    out = e.builder.buffer(e._fresh(label), ("tokens", *columns), ACTIVATION, "activation")
    e.node(op, (*inputs, state, sequence, *ids, *trailing), (out, state), label, **attrs)
    return out


def _plain(
    e: Emitter,
    op: Op,
    inputs: tuple[str, ...],
    state: str,
    trailing: tuple[str, ...],
    columns: Shape,
    label: str,
    **attrs: object,
) -> str:
    sequence, source, target = e.sequences()
    shape = e.shape(state)[1:]
    gathered = e.value(Op.LOAD_REQUEST_STATE, (state, source), shape, f"state_in_{label}", rows="sequences")
    out = e.builder.buffer(e._fresh(label), ("tokens", *columns), ACTIVATION, "activation")
    new = e.builder.buffer(e._fresh(f"state_out_{label}"), ("sequences", *shape), ACTIVATION, "activation")
    e.node(op, (*inputs, gathered, sequence, *trailing), (out, new), label, **attrs)
    e.node(Op.STORE_REQUEST_STATE, (new, target, state), (state,), f"state_store_{label}")
    return out
