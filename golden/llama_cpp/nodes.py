"""The nodes of llama.cpp's graph that are values of this runtime's graph too: by name, and by what computes
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.model.gguf import GGUFFile

ELSEWHERE = ("l_out-", "ffn_moe_topk-", "result_norm", "result_output")  # arrays of their own in a golden
# llama.cpp gives the query before and after these one name; a projection is the last of what comes before them.
AFTER_PROJECTION = ("ROPE", "SCALE")
UNNAMED = ("node_", "leaf_", "cache_")

Occurrences = Mapping[str, Sequence[tuple[str, np.ndarray]]]  # by name: ggml's opcode and values, in graph order


@dataclass(frozen=True, slots=True)
class NodeValue:
    """One value of the graph here: `name` as validation calls it, llama.cpp's `label`, what opcode makes it,
    values a token."""

    name: str
    label: str
    op: str
    columns: int


def values_here(gguf: GGUFFile, context: int) -> list[NodeValue]:
    """Everything that a tap sees of a prompt's pass, in graph order."""
    from zinc_rt.golden.capture import label_of, names_of

    with Engine(gguf, open_backend(ORACLE, "canonical-1", threads=1), ctx=context) as engine:
        graph = engine.graph("prefill")
    columns = {
        (label_of(node, buffer), node.op.name): prod(int(size) for size in graph.buffers[buffer].shape[1:])
        for node in graph.nodes
        for buffer in node.outputs
        if graph.buffers[buffer].role == "activation"
    }
    names = names_of(list(columns))
    return [NodeValue(names[key], *key, columns[key]) for key in columns if not key[0].startswith(ELSEWHERE)]


def matched(
    values: Sequence[NodeValue], seen: Occurrences, tokens: int, rows: Sequence[int]
) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """The values that llama.cpp has of these tokens, f32 [R, ...] under the names here; and what could not be
    compared: `llama_cpp_only`, names that it alone has, and `here_only`."""
    found = {}
    for value in values:
        array = _occurrence(value, seen.get(value.label, ()))
        if array is not None and array.ndim > 1 and array.shape[0] == tokens and _columns(array) == value.columns:
            found[value.name] = np.ascontiguousarray(array[list(rows)], np.float32)
    theirs = {name for name in seen if " " not in name and not name.startswith((*UNNAMED, *ELSEWHERE))}
    return found, {
        "llama_cpp_only": sorted(theirs - {value.label for value in values if value.name in found}),
        "here_only": [value.name for value in values if value.name not in found],
    }


def _columns(array: np.ndarray) -> int:
    return prod(array.shape[1:])


def _occurrence(value: NodeValue, seen: Sequence[tuple[str, np.ndarray]]) -> np.ndarray | None:
    """The one of these that the opcode here stands for; the last where nothing tells them apart."""
    if value.op == "ROPE":
        fitting = [array for op, array in seen if op == "ROPE"]
    elif value.op == "MATMUL":
        fitting = [array for op, array in seen if op not in AFTER_PROJECTION]
    else:
        fitting = [array for _, array in seen]
    return fitting[-1] if fitting else None
