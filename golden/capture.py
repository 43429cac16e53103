"""Run a model once and keep the values that validation compares."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from zinc_rt.engine.engine import Engine, Prefill, Tap
from zinc_rt.engine.engine import Sequence as OpenSequence
from zinc_rt.ir.graph import Node, TokenRole


class TokenWatch(Protocol):
    """Follows the tokens of a run, to check the engine's output for them."""

    def begin(self, slot: int) -> None: ...

    def feed(self, tokens: Sequence[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The values to keep: nodes whose label matches one of the patterns, in layers [first, last)."""

    patterns: tuple[str, ...] = ("l_out-*", "ffn_moe_topk-*")
    first: int = 0
    last: int = 1 << 30

    def is_selected(self, label: str, layer: int | None) -> bool:
        inside = layer is None or self.first <= layer < self.last
        return inside and any(fnmatch.fnmatchcase(label, pattern) for pattern in self.patterns)


@dataclass(slots=True)
class CapturedRun:
    """The values of one run: logits f32 [T + steps, V] (empty if the head did not run), values by label in
    graph order."""

    logits: np.ndarray
    values: dict[str, np.ndarray]
    generated: list[int] = field(default_factory=list)
    head_dims: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    cached: bool = False
    asked: str = ""  # what it is the result of, in words: a cache that mixes two up is found out

    @property
    def layers(self) -> dict[int, np.ndarray]:
        arrays = {}
        for label, value in self.values.items():
            stem, _, layer = label.partition("-")
            if stem == "l_out":
                arrays[int(layer)] = value
        return arrays


def capture_run(
    engine: Engine,
    tokens: Sequence[int],
    selection: Selection | None,
    *,
    prefill: Prefill = "batched",
    inject: Mapping[str, np.ndarray] | None = None,
    steps: int = 0,
    follow: Sequence[int] | None = None,
    watch: TokenWatch | None = None,
    prompt: int | None = None,
) -> CapturedRun:
    """Run the prompt and its continuation. `selection` None: nothing is tapped, the graph runs as in
    production. After the prompt come `steps` greedy tokens, or those in `follow`, so that two runs have the same
    input. `prompt`: how many of `tokens` are of the prompt; the others are decoded ones, in one pass. None: all.
    """
    parts: dict[tuple[str, str], list[np.ndarray]] = {}  # by label and opcode
    head_dims: dict[tuple[str, str], int] = {}

    def tap(node: Node, name: str, array: np.ndarray) -> None:
        label = find_label(node, name)
        if selection is not None and selection.is_selected(label, node.layer):
            parts.setdefault((label, node.op.name), []).append(array.copy())
            head_dims[label, node.op.name] = int(node.attrs.get("value_dim", node.attrs.get("head_dim", 0)))

    started = time.monotonic()
    listener = tap if selection is not None else None
    sequence = engine.open()
    if watch is not None:
        watch.begin(sequence.slot)
        watch.feed(tokens)
    try:
        first = len(tokens) if prompt is None else prompt
        logits = _extend_by_role(engine, sequence, tokens, first, listener, inject or {}, prefill)
        generated: list[int] = []
        for step in range(steps):
            token = int(logits[-1][-1].argmax()) if follow is None else int(follow[step])
            generated.append(token)
            if watch is not None:
                watch.feed([token])
            logits.append(engine.extend(sequence, [token]))
    finally:
        engine.release(sequence)
    name = result_names(list(parts))
    values = {name[key]: np.concatenate(pieces) for key, pieces in parts.items()}
    heads = {name[key]: dim for key, dim in head_dims.items()}
    return CapturedRun(np.concatenate(logits), values, generated, heads, time.monotonic() - started)


def _extend_by_role(
    engine: Engine,
    sequence: OpenSequence,
    tokens: Sequence[int],
    prompt: int,
    tap: Tap | None,
    inject: Mapping[str, np.ndarray],
    prefill: Prefill,
) -> list[np.ndarray]:
    """Append the first `prompt` tokens as those of a prompt, and the others as decoded ones. One pass where
    both have one ordering."""
    if not engine.variants.prefill_ordering:
        prompt = len(tokens)
    parts: tuple[tuple[TokenRole, slice], ...] = (("prompt", slice(0, prompt)), ("decode", slice(prompt, None)))
    return [
        engine.extend(
            sequence, tokens[part], role=role, tap=tap, prefill=prefill,
            inject={name: value[part] for name, value in inject.items()},
        )
        for role, part in parts
        if len(tokens[part])
    ]  # fmt: skip


def result_names(keys: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the names of a node's results. llama.cpp uses one name for Qcur before and after rope. The last value
    keeps the name, as in a golden; an earlier value has its opcode in the name: Qcur.matmul-0.
    """
    last = dict(keys)
    return {key: key[0] if last[key[0]] == key[1] else _add_opcode(*key) for key in keys}


def _add_opcode(label: str, op: str) -> str:
    stem, dash, layer = label.partition("-")
    return f"{stem}.{op.lower()}{dash}{layer}"


def list_aliases(node: Node) -> list[str]:
    """Return the possible names of the node's results in a CapturedRun."""
    return [name for label in list_labels(node) for name in (label, _add_opcode(label, node.op.name))]


def list_labels(node: Node) -> list[str]:
    """Return the labels of the node's results."""
    return [find_label(node, name) for name in node.outputs]


def find_label(node: Node, buffer: str) -> str:
    """Return the label of a result. Further results have their label in the buffer name:
    act.ffn_moe_topk[3] -> ffn_moe_topk-3."""
    if buffer == node.outputs[0]:
        return node.label
    stem, bracket, layer = buffer.removeprefix("act.").partition("[")
    return stem + (f"-{layer.rstrip(']')}" if bracket else "")
