"""Provide the weights of a replay from the log, or from the model file with every byte checked."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np

from zinc_rt.engine.variants import find_overrides
from zinc_rt.host.errors import InputError, ZincError
from zinc_rt.host.settings import Settings
from zinc_rt.ir.differences import find_graph_difference
from zinc_rt.ir.graph import OpGraph, Stage
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.builder import Model, SequenceLimits
from zinc_rt.model.gguf import PLAIN_DTYPES, GGUFFile, read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import Tape
from zinc_rt.trace.weights import compute_digests

Sources = tuple[dict[str, Weight], dict[str, np.ndarray]]  # weights, constants


def find_sources(log: LogReader, tape: Tape, model: str | Path | None = None) -> Sources:
    """Return weights and constants by IR name. `model` overrides the path recorded in the log.

    Raises InputError if the file is missing, is not that model, or contains other bytes.
    """
    weights: dict[str, Weight] = {}
    constants: dict[str, np.ndarray] = {}
    absent: list[records.WeightRecord] = []
    for name, record in tape.weights.items():
        if not record.blob:
            absent.append(record)
            continue
        weight = _read_embedded(log, record)
        if tape.find_role(name) == "constant":
            constants[name] = weight.raw
        else:
            weights[name] = weight
    if absent:
        weights |= _read_from_file(log, tape, model, absent)
    return weights, constants


def find_graph_differences(log: LogReader, tape: Tape, model: str | Path | None = None) -> dict[int, str]:
    """Compare each recorded graph of the whole model with the one that this build makes from the model's file.
    Return the first difference of each that differs, by the number of the graph. Raises InputError if there is no
    such file, or if it has changed."""
    gguf = open_model(log, tape, model)
    described = tape.header.get("model", {})
    if model is None and (gguf.file_bytes, gguf.mtime_ns) != (described.get("size"), described.get("mtime_ns")):
        raise InputError(f"{gguf.path} has changed since it was recorded", next=_AGAIN)
    models = build_recorded_models(gguf, tape)
    differences = {}
    for number, recorded in tape.graphs.items():
        own = models[recorded.graph.stage].graph
        if _is_whole_model(recorded.graph, own) and (text := find_graph_difference(own, recorded.graph)):
            differences[number] = f"{recorded.graph.name}: {text}"
    return differences


def _is_whole_model(recorded: OpGraph, own: OpGraph) -> bool:
    """Return whether a recorded graph computes all of the model's outputs, from its inputs and those of sampling:
    no graph of drafts, of a part of the model, or with injected values."""
    results = {spec.name for spec in own.by_role("output")}
    inputs = {spec.name for spec in recorded.by_role("step") if not spec.name.startswith("sample.")}
    return recorded.name.startswith(own.name) and results <= set(recorded.buffers) and inputs <= set(own.buffers)


def _read_embedded(log: LogReader, record: records.WeightRecord) -> Weight:
    content = np.frombuffer(log.read_blob(record.blob), np.uint8)
    try:
        if record.dtype in PLAIN_DTYPES:
            raw = content.view(PLAIN_DTYPES[record.dtype]).reshape(record.shape)
        else:
            raw = content.reshape(*record.shape[:-1], -1)
    except ValueError as error:
        raise InputError(
            f"{log.path}: {record.name}: {content.nbytes} bytes do not match {record.dtype} {list(record.shape)}"
        ) from error
    return Weight(record.dtype, record.shape, raw)


def _read_from_file(
    log: LogReader, tape: Tape, model: str | Path | None, requested: list[records.WeightRecord]
) -> dict[str, Weight]:
    gguf = open_model(log, tape, model)
    models = build_recorded_models(gguf, tape)
    have = {name: weight for built in models.values() for name, weight in built.weights.items()}
    missing = next((record.name for record in requested if record.name not in have), None)
    if missing is not None:
        raise InputError(f"{gguf.path}: weight {missing} of the recorded model is missing", next=_AGAIN)
    digests = compute_digests(gguf, {record.name: have[record.name] for record in requested})
    for record in requested:
        weight = have[record.name]
        if (weight.dtype, weight.shape) != (record.dtype, record.shape):
            raise InputError(
                f"{gguf.path}: {record.name} is {weight.dtype} {list(weight.shape)}, but the log has "
                f"{record.dtype} {list(record.shape)}",
                next=_AGAIN,
            )
        if digests[record.name] != record.sha256:
            raise InputError(
                (
                    f"{gguf.path}: the bytes of {record.name} differ: sha256 {digests[record.name]}, "
                    f"but the log has {record.sha256}"
                ),
                next=_AGAIN,
            )
    return {record.name: have[record.name] for record in requested}


_AGAIN = "give the file of the recorded run: --model FILE"


def open_model(log: LogReader, tape: Tape, model: str | Path | None) -> GGUFFile:
    path = model or tape.header.get("model", {}).get("path")
    if not path:
        raise InputError(f"{log.path}: the log names no model and does not contain its weights", next=_AGAIN)
    if model is None and not Path(path).exists():
        raise InputError(
            f"{path}: the recorded model does not exist", next="set its current path with --model FILE"
        )
    return read_gguf(path)


def build_recorded_models(gguf: GGUFFile, tape: Tape) -> dict[Stage, Model]:
    """Build every stage that the log runs from the model file, with the log's settings and limits. Raises
    InputError if this is not possible."""
    header = tape.header
    try:
        known = {field.name for field in fields(Settings)}
        settings = Settings(**{key: value for key, value in header["settings"].items() if key in known})
        limits = SequenceLimits(**header["limits"])
        delta_form = header["delta_form"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the log's header lacks the build parameters of its model: {error}") from error
    try:
        return {
            stage: build_model(gguf, limits, stage, delta_form=delta_form, overrides=find_overrides(settings))
            for stage in {recorded.graph.stage for recorded in tape.graphs.values()}
        }
    except ZincError as error:
        raise InputError(f"{gguf.path}: not the recorded model: {error}", next=_AGAIN) from error
