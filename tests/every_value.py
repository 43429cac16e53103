"""Every value of a model's run on one tier, by step and buffer: what two tiers are held to, to the bit."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from contextlib import AbstractContextManager

import numpy as np

from zinc_rt.engine.engine import Engine, Sequence, Tap
from zinc_rt.ir.graph import Node

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]  # fits the capacity of 16, and fills no tile
OTHER = [2, 7, 1, 8]
Values = dict[str, np.ndarray]


def assert_same(got: Values, want: Values, *, minimum: int = 20) -> None:
    """Compare every value bit for bit; report the first in run order that differs."""
    assert got.keys() == want.keys() and len(want) > minimum
    different = [name for name in want if want[name].tobytes() != got[name].tobytes()]
    assert not different, (
        f"{len(different)} of {len(want)} differ, first {different[0]}: "
        f"{first_difference(got, want, different[0])}"
    )


def first_difference(got: Values, want: Values, name: str) -> str:
    a, b = got[name].reshape(-1), want[name].reshape(-1)
    index = int(np.argmax(a.view(np.uint32) != b.view(np.uint32)))
    return f"element {index} of {a.size} is {a[index]!r}, not {b[index]!r}"


def record_every_value(opened: AbstractContextManager[Engine], *, steps: int) -> Values:
    """Run a prompt in one pass, `steps` greedy tokens one by one, the same prompt token by token, and a step of
    two sequences. The engine has at least two slots and is closed afterwards.
    """
    values: Values = {}
    with opened as engine:
        first = engine.open()
        logits = extend_sequence(engine, first, PROMPT, "prompt", values)
        for step in range(steps):
            logits = extend_sequence(engine, first, [int(logits[-1].argmax())], f"decode {step}", values)
        second = engine.open()
        stepwise = engine.extend(second, PROMPT, prefill="stepwise")
        assert stepwise.tobytes() == values["prompt logits"].tobytes(), "one pass and token by token differ"
        both = [(second, OTHER), (first, OTHER[:1])]
        values["two logits"] = engine.step(both, [3, 4], tap=recording_tap(values, "two"))
    return values


def extend_sequence(
    engine: Engine, sequence: Sequence, tokens: Tokens[int], prefix: str, values: Values
) -> np.ndarray:
    logits = engine.extend(sequence, tokens, tap=recording_tap(values, prefix))
    values[f"{prefix} logits"] = logits
    return logits


def recording_tap(values: Values, prefix: str) -> Tap:
    def record_value(node: Node, name: str, array: np.ndarray) -> None:
        values[f"{prefix} {node.label or node.op.name} {node.op.name} {name}"] = array.copy()

    return record_value
