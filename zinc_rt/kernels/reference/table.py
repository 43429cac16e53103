"""The table of T-CPU: the function of each opcode. Every function supports any ordering and weight type."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from zinc_rt.ir.dtypes import CACHE_TYPES
from zinc_rt.ir.op import WMMA_FORMS, WMMA_ORDERINGS, Op
from zinc_rt.kernels import reference
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.reference.arithmetic import ORDERINGS
from zinc_rt.kernels.reference.matmul_wmma import use_wmma
from zinc_rt.kernels.sets import Kernels
from zinc_rt.kernels.weight import view_bytes

# code(math, *inputs, **attrs) -> the outputs that are not in place, one array or a tuple of them
Code = Callable[..., Any]

OTHER_NAMES = {  # several opcodes with one function, and a name reserved by Python
    Op.MATMUL_WMMA_Q4K: "matmul_wmma",
    **{forms[Op.MATMUL]: "matmul_wmma" for forms in WMMA_FORMS.values()},
    **{
        form: op.name.lower() for forms in WMMA_FORMS.values() for op, form in forms.items() if op is not Op.MATMUL
    },
    Op.SLICE: "slice_columns",
}


def _functions() -> dict[Op, Code]:
    """Return the functions by opcode, in the order of their numbers. BARRIER computes nothing and has no
    function.
    """
    defined: dict[str, Code] = {}
    for file in pkgutil.iter_modules(reference.__path__, f"{reference.__name__}."):
        if file.name != __name__ and not file.ispkg:
            functions = vars(import_module(file.name)).items()
            defined.update(
                {name: code for name, code in functions if getattr(code, "__module__", "") == file.name}
            )
    names = {op: OTHER_NAMES.get(op, op.name.lower()) for op in Op}
    found = {op: defined[name] for op, name in names.items() if name in defined}
    return found | {form: use_wmma(found[form], ordering) for form, ordering in WMMA_ORDERINGS.items()}


FUNCTIONS = _functions()
ENTRIES: tuple[Entry, ...] = tuple(
    Entry(op, code, frozenset(ORDERINGS), cache_dtypes=frozenset(CACHE_TYPES)) for op, code in FUNCTIONS.items()
)


def names() -> tuple[str, ...]:
    return tuple(sorted(op.name.lower() for op in FUNCTIONS))


KERNELS = Kernels("numpy-reference", ENTRIES, view_bytes, lambda weight: weight.nbytes, names)
