"""Import a golden from a user's dump: an .npz with ids, logits, and further arrays of another engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from zinc_rt.engine.engine import choose_default_ctx
from zinc_rt.golden.format import EXPERTS, FIXED, NODE, read_arrays, write_golden
from zinc_rt.golden.make import make_metadata
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.hyper import HyperParameters

LAYER = re.compile(r"l_out-(\d+)")
INTEGERS = re.compile(r"ids|greedy_tokens|ffn_moe_topk-\d+")


def parse_names(pairs: list[str]) -> dict[str, str]:
    """Parse the arguments of --map, each of the form `their_name=our_name`."""
    names: dict[str, str] = {}
    for pair in pairs:
        theirs, equals, ours = pair.partition("=")
        if not (theirs and equals and ours):
            raise UsageError(f"--map {pair}: expected their_name=our_name, like hidden_0=l_out-0")
        if theirs in names or ours in names.values():
            raise UsageError(f"--map {pair}: {theirs} or {ours} is used twice")
        names[theirs] = ours
    return names


def import_npz(
    dump: str | Path,
    gguf: GGUFFile,
    out: str | Path,
    *,
    names: Mapping[str, str],
    source: str,
    ctx: int | None,
    command: str = "",
) -> dict[str, np.ndarray]:
    """Check the arrays of the dump against the model, write them as a golden to `out`, and return them.

    Raises InputError naming the array that does not match.
    """
    dump = Path(dump)
    theirs = read_arrays(dump)
    if lost := sorted(set(names) - set(theirs)):
        raise InputError(
            f"{dump}: there is no array named {lost[0]}", next="it holds " + ", ".join(sorted(theirs))
        )
    named: dict[str, np.ndarray] = {}
    for name, array in theirs.items():
        ours = names.get(name, name)
        if ours in named:
            raise InputError(
                f"{dump}: two arrays would have the name {ours}", next="change one of the --map options"
            )
        named[ours] = array
    named.pop("meta", None)
    unknown = [name for name in named if name not in FIXED and not EXPERTS.fullmatch(name) and not _is_node(name)]
    if unknown:
        raise InputError(
            f"{dump}: unknown array {unknown[0]}; valid names are {', '.join(FIXED)}, or label-N for layer N",
            next=f"--map {unknown[0]}=our_name, names in docs/golden.md",
        )
    arrays = {name: _convert_array(dump, name, array) for name, array in named.items()}
    _stack_layers(dump, arrays)
    _check(dump, arrays, gguf)
    write_golden(out, arrays, make_metadata(gguf, source, choose_default_ctx(gguf, ctx), command) | {
        "dump": dump.name,
        "dtypes": {name: str(array.dtype) for name, array in named.items()},
        "names": dict(names),
    })  # fmt: skip
    return arrays


def _is_node(name: str) -> bool:
    return NODE.fullmatch(name) is not None or LAYER.fullmatch(name) is not None


def _convert_array(dump: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Convert ids to int32 and values to float32."""
    if INTEGERS.fullmatch(name):
        if not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"{dump}: {name} is {array.dtype}, expected integers")
        return array.astype(np.int32)
    if array.dtype == np.dtype("V2"):  # how bfloat16 arrays of ml_dtypes come back
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"{dump}: {name} is {array.dtype}, expected floats")
    if np.isnan(array).any():
        where = np.argwhere(np.isnan(array))[0].tolist()
        raise InputError(f"{dump}: {name}{where} contains NaN, so it cannot be compared")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _stack_layers(dump: Path, arrays: dict[str, np.ndarray]) -> None:
    """Stack the arrays l_out-0, l_out-1, ... into l_out."""
    layers = {int(match[1]): name for name in arrays if (match := LAYER.fullmatch(name))}
    if not layers:
        return
    if "l_out" in arrays:
        raise InputError(f"{dump}: give either l_out or l_out-{min(layers)}, not both")
    missing = [layer for layer in range(max(layers) + 1) if layer not in layers]
    shapes = {arrays[name].shape for name in layers.values()}
    if missing or len(shapes) > 1:
        saw = f"no l_out-{missing[0]}" if missing else f"l_out-N of shapes {sorted(shapes)}"
        raise InputError(f"{dump}: {saw}; every layer is required, all with the same shape")
    arrays["l_out"] = np.stack([arrays.pop(layers[layer]) for layer in range(len(layers))])


def _check(dump: Path, arrays: dict[str, np.ndarray], gguf: GGUFFile) -> None:
    hyper = HyperParameters(gguf.architecture, gguf.metadata, str(gguf.path))
    layers = hyper.read_positive("block_count") - hyper.read_integer("nextn_predict_layers", 0)
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None:
        raise InputError(f"{gguf.path}: the tensor token_embd.weight is missing", next="use a whole model")
    vocab, width = embedding.shape
    for name in ("ids", "logits"):
        if name not in arrays:
            raise InputError(
                f"{dump}: array {name} is missing; the file contains {', '.join(sorted(arrays)) or 'nothing'}",
                next=f"--map their_name={name}",
            )
    tokens = arrays["ids"].size
    steps = arrays["greedy_tokens"].size if "greedy_tokens" in arrays else 0
    expected: dict[str, tuple[int, ...]] = {
        "ids": (tokens,),
        "logits": (tokens, vocab),
        "l_out": (layers, tokens, width),
        "result_norm": (tokens, width),
        "greedy_tokens": (steps,),
        "greedy_logits": (steps, vocab),
    }
    for name, array in arrays.items():
        shape = expected.get(name, (tokens, *array.shape[1:]))
        if array.shape != shape or not array.size:
            meaning = " (layers, tokens, width)" if name == "l_out" else ""
            raise InputError(
                f"{dump}: {name} has shape {list(array.shape)}, expected {list(shape)}{meaning} for "
                f"{gguf.path.name}"
            )
        if name in ("ids", "greedy_tokens") and not (array.min() >= 0 and array.max() < vocab):
            raise InputError(
                f"{dump}: {name} ranges from {array.min()} to {array.max()}, but the vocabulary has {vocab} tokens"
            )
