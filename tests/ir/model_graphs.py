"""The graphs of the models that ship with the package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.ir.graph import OpGraph
from zinc_rt.model.builder import DeltaForm, SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

GOLDEN = Path(__file__).parents[2] / "golden"
FORMS: tuple[DeltaForm, ...] = ("ids", "inplace", "plain")
MODELS = sorted(pair.model.stem for pair in list_embedded_pairs())


@cache
def model_graph(name: str, form: DeltaForm = "ids") -> OpGraph:
    return build_model(read_gguf(GOLDEN / f"{name}.gguf"), SequenceLimits(ctx=64, slots=2), delta_form=form).graph
