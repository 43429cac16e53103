"""Run a part of a model: select layers, the input of the first one, and the remaining graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zinc_rt.golden.format import read_arrays, read_golden
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.rewrite import find_label, keep_outputs, make_injected_name


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers [first, last) of `total`."""

    first: int
    last: int
    total: int

    @property
    def whole(self) -> bool:
        return self.first == 0 and self.last == self.total

    @property
    def feed(self) -> str:
        """Return the name of the value that replaces the layers before `first`; empty if there are none."""
        return f"l_out-{self.first - 1}" if self.first else ""


def parse_layers(text: str, total: int) -> Layers:
    """Parse --layers: `all`, `i` or `i:j` (either end may be omitted). Raise UsageError outside the model."""
    if text == "all":
        return Layers(0, total, total)
    match = re.fullmatch(r"(\d*)(:)?(\d*)", text)
    if not match or text in ("", ":"):
        raise UsageError(f"--layers {text!r}: expected all, one layer like 3, or a range like 2:5")
    first = int(match[1] or 0)
    last = (int(match[3]) if match[3] else total) if match[2] else first + 1
    if not 0 <= first < last <= total:
        raise UsageError(f"--layers {text}: this model has layers 0 to {total - 1}")
    return Layers(first, last, total)


def transform(layers: Layers) -> Callable[[OpGraph], OpGraph] | None:
    """Return the graph transformation that makes an engine run only these layers; None for the whole model."""
    if layers.whole:
        return None

    def cut(graph: OpGraph) -> OpGraph:
        ends = [f"l_out-{layer}" for layer in range(layers.first, layers.last)]
        # a layer whose output is replaced feeds nothing any more, and is looked at all the same
        ends = [end for end in ends[:-1] if make_injected_name(end) in graph.buffers] + ends[-1:]
        outputs = [find_label(graph, end).outputs[0] for end in ends]
        if layers.last == layers.total:
            outputs += [spec.name for spec in graph.by_role("output")]
        return keep_outputs(graph, outputs)

    return cut


@dataclass(frozen=True, slots=True)
class LayerInput:
    """The input of the first layer, f32 [T, width], and a description of its origin."""

    values: np.ndarray
    origin: str
    true: bool  # whether it is what the model itself would have there


def make_random_input(seed: int, tokens: int, width: int) -> LayerInput:
    values = np.random.default_rng(seed).standard_normal((tokens, width), np.float32)
    return LayerInput(values, f"random:{seed}, normal with σ 1, not the model's own activations", true=False)


def read_input_file(path: str, layers: Layers, tokens: int, width: int) -> LayerInput:
    """Read the input from an .npz: `input` [T, width], or `l_out` [L, T, width], of which the layer before the
    first is used.
    """
    if not Path(path).exists():
        raise InputError(f"--input {path}: no such file", next="oracle, random:SEED, or an .npz file")
    values = read_arrays(Path(path)).get("input")
    if values is None:
        golden = read_golden(path)
        if golden.l_out is None or len(golden.l_out) < layers.first:
            raise InputError(f"--input {path}: contains neither `input` nor l_out of layer {layers.first - 1}")
        values = golden.l_out[layers.first - 1]
    if values.shape != (tokens, width) or not np.issubdtype(values.dtype, np.number):
        saw = f"{values.dtype}{list(values.shape)}"
        raise InputError(f"--input {path}: {saw}, expected numbers in [{tokens}, {width}] (tokens, width)")
    return LayerInput(values.astype(np.float32), path, true=True)
