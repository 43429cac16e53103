"""Find the origin of NaN or infinity in a run: the first non-finite value of any node, in execution order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zinc_rt.engine.engine import Engine
from zinc_rt.golden.capture import CapturedRun, find_label
from zinc_rt.ir.graph import ABSENT, Node
from zinc_rt.model.scales import find_nonfinite


@dataclass(frozen=True, slots=True)
class NonfiniteOrigin:
    """The first non-finite value. `inputs` describes whether the node's inputs were finite, as far as they can be
    tapped.
    """

    node: str
    token: int
    head: int | None
    dim: int
    value: float
    inputs: str

    def first_bad(self) -> dict[str, Any]:
        head = {} if self.head is None else {"head": self.head}
        return {"node": self.node, "token": self.token, **head, "dim": self.dim, "got": self.value}

    @property
    def text(self) -> str:
        head = "" if self.head is None else f"head {self.head}, "
        return (
            f"first non-finite value: node {self.node}, token {self.token}, {head}element {self.dim}: "
            f"{self.value}; {self.inputs}"
        )


def has_nonfinite(run: CapturedRun) -> bool:
    return not all(np.isfinite(array).all() for array in (run.logits, *run.values.values()))


def find_first_nonfinite(
    engine: Engine, tokens: Sequence[int], follow: Sequence[int], inject: Mapping[str, np.ndarray]
) -> NonfiniteOrigin | None:
    """Run the prompt, then the tokens of `follow` one by one, with every node tapped. Return None if every value
    is finite.
    """
    seen: dict[str, bool] = {}  # by buffer: finite in this pass
    origin: list[NonfiniteOrigin] = []

    def tap(node: Node, name: str, array: np.ndarray) -> None:
        finite = bool(np.isfinite(array).all())
        if not finite and not origin:
            origin.append(_find_origin(engine, node, name, array, sequence.position, seen))
        seen[name] = finite

    largest = engine.limits.step_tokens
    passes = [list(tokens[start : start + largest]) for start in range(0, len(tokens), largest)]
    sequence = engine.open()
    try:
        for part in [*passes, *([token] for token in follow)]:
            seen.clear()
            start = sequence.position
            within = {name: array[start : start + len(part)] for name, array in inject.items()}
            in_prompt = start < len(tokens)
            engine.extend(
                sequence,
                part,
                role="prompt" if in_prompt else "decode",
                tap=tap,
                inject=within if in_prompt else None,
            )
            if origin:
                return origin[0]
    finally:
        engine.release(sequence)
    return None


def _find_origin(
    engine: Engine, node: Node, name: str, array: np.ndarray, end: int, seen: Mapping[str, bool]
) -> NonfiniteOrigin:
    """Return the first origin in one pass. `end` is the position after this pass."""
    flat = array.reshape(len(array), -1)
    token, dim = (int(i) for i in np.unravel_index(int(np.argmin(np.isfinite(flat))), flat.shape))
    value = float(flat[token, dim])
    head_dim = int(node.attrs.get("value_dim", node.attrs.get("head_dim", 0)))
    head = None
    if head_dim:
        head, dim = divmod(dim, head_dim)
    return NonfiniteOrigin(
        find_label(node, name), end - len(array) + token, head, dim, value, _describe_inputs(engine, node, seen)
    )


def _describe_inputs(engine: Engine, node: Node, seen: Mapping[str, bool]) -> str:
    """Describe the node's inputs: tapped activations, and weights from the file."""
    read = [name for name in node.inputs if name != ABSENT]
    for name in read:
        weight = engine.model.weights.get(name)
        if weight is not None and (problem := find_nonfinite(name, weight.dtype, weight.raw)) is not None:
            return f"its weight is not: {problem.text}"
    names = [name for name in read if not seen.get(name, True)]
    if names:
        return f"its input {names[0]} was not finite either"
    buffers = engine.graph("prefill").buffers
    state = [name for name in read if name in buffers and buffers[name].role == "state"]
    return "its inputs were finite" + (f" except {state[0]}, which cannot be tapped" if state else "")
