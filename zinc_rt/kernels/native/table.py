"""The kernels of this machine's CPU: their rows, and the parameters that the shared rows need."""

from __future__ import annotations

import re
from functools import cache

from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.rows import (
    attention,
    embed,
    mla,
    moe,
    projections,
    recurrent,
    rope,
    sample,
    table_store,
)
from zinc_rt.kernels.native.vectors import accept_any_vectors
from zinc_rt.kernels.rows import elementwise, norm, sampling, slots
from zinc_rt.kernels.rows.operands import F32
from zinc_rt.kernels.rows.tuning import Tuning
from zinc_rt.kernels.sets import Kernels
from zinc_rt.kernels.weight import view_bytes

ORDERINGS = frozenset({"canonical-1", "canonical-1-q8"})
_DECLARED = re.compile(r"^KERNEL\((\w+)\)", re.MULTILINE)
WHOLE = 1 << 30  # a row is one item

TUNING = Tuning(
    orderings=ORDERINGS,
    weight_dtypes=(),  # options of the GPU's projections, which have separate rows here
    expansions={},
    columns=2048,  # elementwise.c's COLUMNS
    slice_columns=WHOLE,
    embed_columns=WHOLE,
    copy_columns=WHOLE,
    expert_columns=WHOLE,
    matvec_rows=1,
    matmul_rows=1,
    matmul_tokens=1,
    matmul_capacity=WHOLE,
    grid_rows=0xFFFFFFFF,
    flash_widths=(WHOLE,),
    latent_widths=(),
    flash_multiple=1,
    flash_batch=1,
    experts_maximum=WHOLE,
    choices_maximum=WHOLE,
    conv_taps=WHOLE,
    state_columns=WHOLE,
    gate_heads=WHOLE,
    delta_values=1,
    delta_head_maximum=WHOLE,
    scan_channels=1,
    scan_states_maximum=WHOLE,
    vocabulary_maximum=WHOLE,
    sample_block=1,
    sample_columns=WHOLE,
)

# Families of rows. Those of this folder split work differently, or check ids, which the shared rows leave to a
# device; a shared row is used for an opcode that they lack. Rows of float32 vectors accept other types too:
# vectors.py dequantises them first.
OWN = (
    embed,
    projections,
    attention,
    mla,
    moe,
    recurrent,
    rope,
    sample,
    table_store,
)
SHARED = (norm, elementwise, sampling, slots)

_OWN_ENTRIES = tuple(row for family in OWN for row in family.rows(TUNING))
_TAKEN = {row.op for row in _OWN_ENTRIES}
_ENTRIES = (
    *_OWN_ENTRIES,
    *(row for family in SHARED for row in family.rows(TUNING) if row.op not in _TAKEN),
)
ENTRIES: tuple[Entry, ...] = tuple(
    accept_any_vectors(row) if row.weight_dtypes == F32 else row for row in _ENTRIES
)


@cache
def list_kernel_names() -> tuple[str, ...]:
    """Return the names of the kernels declared in the C sources."""
    return tuple(sorted({name for path in build.list_sources() for name in _DECLARED.findall(path.read_text())}))


KERNELS = Kernels("native", ENTRIES, view_bytes, lambda weight: weight.nbytes, list_kernel_names)
