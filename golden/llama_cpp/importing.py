"""Create goldens with llama.cpp: its logits and selected graph nodes for one prompt, through
llama-cpp-python.

Comparable settings: KV cache in F32, no flash attention, no repacked weights, one thread.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType, GGUFValueType

from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.draws import record_draws
from zinc_rt.golden.format import write_golden
from zinc_rt.golden.llama_cpp.graph_capture import GraphCapture
from zinc_rt.golden.llama_cpp.tokenizer_texts import tokenize_texts
from zinc_rt.host.errors import InputError, UnsupportedError, UsageError
from zinc_rt.model.gguf import GGUFFile, digest_model, read_gguf

ELSEWHERE = ("l_out-", "ffn_moe_topk-", "result_norm", "result_output")  # arrays of their own in a golden
# llama.cpp gives the query before and after these one name; a projection is the last of what comes before them.
AFTER_PROJECTION = ("ROPE", "SCALE")
UNNAMED = ("node_", "leaf_", "cache_")

Occurrences = Mapping[str, Sequence[tuple[str, np.ndarray]]]  # by name: ggml's opcode and values, in graph order


@dataclass(frozen=True, slots=True)
class NodeValue:
    """A value of this runtime's graph: `name` as in validation, llama.cpp's `label`, the opcode that
    produces it, and the number of values per token."""

    name: str
    label: str
    op: str
    columns: int


def list_expected_values(gguf: GGUFFile, context: int) -> list[NodeValue]:
    """Return every value that a tap observes during a prompt pass, in graph order."""
    from zinc_rt.golden.capture import find_label, result_names

    with Engine(gguf, open_backend(ORACLE, "canonical-1", threads=1), ctx=context) as engine:
        graph = engine.graph("prefill")
    columns = {
        (find_label(node, buffer), node.op.name): prod(int(size) for size in graph.buffers[buffer].shape[1:])
        for node in graph.nodes
        for buffer in node.outputs
        if graph.buffers[buffer].role == "activation"
    }
    names = result_names(list(columns))
    return [NodeValue(names[key], *key, columns[key]) for key in columns if not key[0].startswith(ELSEWHERE)]


def match_values(
    values: Sequence[NodeValue], seen: Occurrences, tokens: int, rows: Sequence[int]
) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Return llama.cpp's values for these tokens, f32 [R, ...] under this runtime's names, and the names
    that could not be compared: `llama_cpp_only` and `here_only`."""
    pairs = {}
    for value in values:
        array = find_occurrence(value, seen.get(value.label, ()))
        if (
            array is not None
            and array.ndim > 1
            and array.shape[0] == tokens
            and _count_columns(array) == value.columns
        ):
            pairs[value.name] = np.ascontiguousarray(array[list(rows)], np.float32)
    theirs = {name for name in seen if " " not in name and not name.startswith((*UNNAMED, *ELSEWHERE))}
    return pairs, {
        "llama_cpp_only": sorted(theirs - {value.label for value in values if value.name in pairs}),
        "here_only": [value.name for value in values if value.name not in pairs],
    }


def _count_columns(array: np.ndarray) -> int:
    return prod(array.shape[1:])


def find_occurrence(value: NodeValue, seen: Sequence[tuple[str, np.ndarray]]) -> np.ndarray | None:
    """Return the candidate that the opcode stands for; the last one if they cannot be distinguished."""
    if value.op == "ROPE":
        fitting = [array for op, array in seen if op == "ROPE"]
    elif value.op == "MATMUL":
        fitting = [array for op, array in seen if op not in AFTER_PROJECTION]
    else:
        fitting = [array for _, array in seen]
    return fitting[-1] if fitting else None


LAYER = re.compile(r"-\d+$")
GELU_ARCHITECTURES = ("gemma",)
Arrays = dict[str, np.ndarray]


def import_llama_cpp(
    model: str | os.PathLike[str],
    tokens: Sequence[int],
    out_npz: str | os.PathLike[str],
    *,
    steps: int = 8,
    context: int = 256,
    dequantised: bool = False,
    rows: Sequence[int] = (),
    whole: bool = True,
    command: str | None = None,
) -> Arrays:
    """Run `tokens` through llama.cpp, continue greedily for `steps`, write the arrays to `out_npz`, and
    return them.

    ids int32 [T], logits f32 [T, V], greedy_tokens int32 [steps], greedy_margin f32 [steps] (best minus
    second when the token was selected), greedy_logits f32 [steps, V] (after each token), l_out f32 [L, T,
    D], result_norm f32 [T, D], ffn_moe_topk-N int32 [T, k]. `dequantised` adds logits_deq and so on, all
    except ids and greedy_margin: the same weights in F32. `context` is llama.cpp's n_ctx. For a model with
    GELU the arrays are also stored as *_exactgelu, or its *_deq use exact GELU; see gelu.py.

    `rows`, increasing positions of the prompt, adds LABEL-N f32 [R, ...] of every value with the same name
    in llama.cpp and this runtime, with the weights and the GELU that allow tight comparison; with `whole`
    False the other arrays also contain only these tokens. meta contains the results of llama.cpp's
    tokenizer for TEXTS, and draws from its logits. `command`, if given, is stored in meta as the command
    that created the file.

    Raises UnsupportedError if llama-cpp-python is missing or cannot load the model. OutputError: cannot write
    `out_npz`.
    """
    model, out_npz = Path(model), Path(out_npz)
    llama = _import_module()
    gguf_file = read_gguf(model)  # refuses what would bring llama.cpp down
    architecture = gguf_file.architecture
    kept = KeptPositions(sorted(rows), whole)
    kept.check(len(tokens))
    values = list_expected_values(gguf_file, context) if rows else []
    exact_gelu = architecture.startswith(GELU_ARCHITECTURES)
    suffix = "_deq" if dequantised else "_exactgelu" if exact_gelu else ""
    arrays, about = _run_model(llama, model, tokens, steps, context, kept, values if not suffix else [])
    if suffix:
        with tempfile.TemporaryDirectory() as folder:
            plain = model
            if dequantised:
                write_dequantised(model, plain := Path(folder, "f32.gguf"))
            tight, about = _run_model(llama, plain, tokens, steps, context, kept, values, exact_gelu=exact_gelu)
            arrays |= _rename_variant(tight, suffix)
    if rows:
        arrays["rows"] = np.array(kept.rows, np.int32)
    meta = {
        "source": "llama-cpp",
        "llama_cpp": _read_version(llama),
        "arch": architecture,
        "model": model.name,
        "model_digest": digest_model(gguf_file),
        "n_ctx": context,
        "settings": f"cpu, n_ctx={context}, kv f32, flash_attn off, repack off, 1 thread",
        "logit_std": float(arrays["logits"].std()),
        "min_greedy_margin": float(arrays["greedy_margin"].min()) if steps else None,
        **about,
    }
    if command is not None:
        meta["command"] = command
    write_golden(out_npz, arrays, meta)
    return arrays


@dataclass(frozen=True, slots=True)
class KeptPositions:
    """The positions of the prompt whose named values are stored; unless `whole`, nothing is stored for
    other positions."""

    rows: Sequence[int]
    whole: bool

    def check(self, tokens: int) -> None:
        """Check the positions. Raises UsageError for positions outside the prompt."""
        if len(set(self.rows)) < len(self.rows) or not all(0 <= row < tokens for row in self.rows):
            raise UsageError(
                f"rows {', '.join(map(str, self.rows))}: expected distinct positions within {tokens} tokens"
            )
        if len(self.rows) == tokens:
            raise UsageError(f"rows include all {tokens} tokens", next="remove at least one of them")
        if not (self.rows or self.whole):
            raise UsageError("no values would be stored", next="select rows to store")

    def of(self, array: np.ndarray, axis: int = 0) -> np.ndarray:
        return array if self.whole else np.ascontiguousarray(np.take(array, self.rows, axis))


def _rename_variant(arrays: Arrays, suffix: str) -> Arrays:
    return {f"{name}{suffix}": array for name, array in arrays.items() if name not in ("ids", "greedy_margin")}


def write_dequantised(model: Path, out: Path) -> None:
    """Write a copy of `model` with every quantised or half-precision tensor as F32 and unchanged metadata."""
    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for key, field in reader.fields.items():
        if key == "general.architecture" or key.startswith("GGUF."):
            continue
        item = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], item)
    for tensor in reader.tensors:
        plain = tensor.tensor_type in (GGMLQuantizationType.F32, GGMLQuantizationType.I32)
        writer.add_tensor(
            tensor.name, tensor.data if plain else gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _import_module() -> ModuleType:
    try:
        import llama_cpp
    except ImportError as error:
        raise UnsupportedError(
            "goldens from llama.cpp need llama-cpp-python", next="pip install zinc-rt[llama-cpp]"
        ) from error
    return llama_cpp


def _read_version(llama: ModuleType) -> str:
    ask = getattr(llama, "llama_version", None)  # newer than the oldest llama-cpp-python we accept
    own = f"llama-cpp-python {llama.__version__}"
    return own if ask is None else f"{ask().decode()} ({_read_commit()}), {own}"


def _read_commit() -> str:
    """Return the commit of the ggml library in use, which is that of llama.cpp."""
    from llama_cpp._ggml import libggml

    libggml.ggml_commit.restype = ctypes.c_char_p
    return str(libggml.ggml_commit().decode())


@contextmanager
def _collect_log(llama: ModuleType) -> Iterator[list[str]]:
    """Redirect llama.cpp's log from the terminal to the list."""
    lines: list[str] = []

    def keep(_level: int, text: bytes, _user_data: object) -> None:
        lines.append(text.decode(errors="replace"))

    callback = llama.llama_log_callback(keep)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        yield lines
    finally:
        llama.llama_log_set(_discard_log(llama), ctypes.c_void_p(0))


@cache
def _discard_log(llama: ModuleType) -> Callable[..., None]:
    """Return a log callback that prints nothing. It is kept alive, because llama.cpp references it until the
    process ends.
    """
    silence: Callable[..., None] = llama.llama_log_callback(lambda *_: None)
    return silence


def _run_model(
    llama: ModuleType,
    model: Path,
    tokens: Sequence[int],
    steps: int,
    context: int,
    kept: KeptPositions,
    values: Sequence[NodeValue],
    *,
    exact_gelu: bool = False,
) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and their metadata. `values`: further values of the rows to capture."""
    with ExitStack() as stack:
        lines = stack.enter_context(_collect_log(llama))
        llama.llama_backend_init()
        model_settings = llama.llama_model_default_params()
        model_settings.n_gpu_layers = 0
        model_settings.use_extra_bufts = False
        loaded = llama.llama_model_load_from_file(str(model).encode(), model_settings)
        if not loaded:
            raise UnsupportedError(f"{model}: llama.cpp cannot load it: {_find_reason(lines)}")
        stack.callback(llama.llama_model_free, loaded)
        vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(loaded))
        _check_arguments(model, tokens, steps, context, vocab)
        capture = GraphCapture(llama, {value.label for value in values}, exact_gelu=exact_gelu)
        session = llama.llama_init_from_model(loaded, _make_context_settings(llama, context, capture))
        if not session:
            raise UnsupportedError(f"{model}: llama.cpp could not create a context: {_find_reason(lines)}")
        stack.callback(llama.llama_free, session)

        def decode(ids: Sequence[int], first: int) -> np.ndarray:
            return _decode(llama, session, ids, first, vocab)

        logits = decode(tokens, 0)
        capture.check()
        capture.on = False
        arrays: Arrays = {"ids": np.array(tokens, np.int32), "logits": kept.of(logits)}
        arrays |= _continue_greedily(logits[-1], len(tokens), steps, decode)
        capture.check()
        arrays |= _name_arrays(capture.arrays, llama.llama_model_n_layer(loaded), kept)
        nodes, apart = match_values(values, capture.seen, len(tokens), kept.rows)
        drawn = list(kept.rows) or [len(tokens) - 1]
        return arrays | nodes, {
            "tokenizer": tokenize_texts(llama, llama.llama_model_get_vocab(loaded)),
            "draws": [draw.as_dict() for draw in record_draws(llama, logits[drawn], drawn)],
            **(_make_metadata(nodes, apart) if values else {}),
        }


def _make_metadata(nodes: Arrays, apart: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "nodes_without_layer": sorted(name for name in nodes if not LAYER.search(name)),
        "nodes_not_compared": apart,
    }


def _make_context_settings(llama: ModuleType, context: int, capture: GraphCapture) -> ctypes.Structure:
    settings: ctypes.Structure = llama.llama_context_default_params()
    for name, value in {
        "n_ctx": context,
        "n_batch": context,
        "n_ubatch": context,
        "n_seq_max": 1,
        "n_threads": 1,
        "n_threads_batch": 1,
        "type_k": llama.GGML_TYPE_F32,
        "type_v": llama.GGML_TYPE_F32,
        "flash_attn_type": llama.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "offload_kqv": False,
        "cb_eval": capture.callback,
    }.items():
        setattr(settings, name, value)
    return settings


def _check_arguments(model: Path, tokens: Sequence[int], steps: int, context: int, vocab: int) -> None:
    if not tokens or steps < 0 or len(tokens) + steps > context:
        raise UsageError(f"{len(tokens)} tokens and {steps} steps exceed a context of {context}")
    if min(tokens) < 0 or max(tokens) >= vocab:
        raise InputError(
            f"{model}: token ids range up to {vocab - 1}, but the prompt has ids {min(tokens)} to {max(tokens)}"
        )


def _decode(llama: ModuleType, session: object, ids: Sequence[int], first: int, vocab: int) -> np.ndarray:
    """Return the logits, float32 (len(ids), vocab)."""
    batch = llama.llama_batch_init(len(ids), 0, 1)
    try:
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index] = int(token)
            batch.pos[index] = first + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 1
        status = llama.llama_decode(session, batch)
        if status:
            raise UnsupportedError(
                f"llama.cpp could not decode tokens {first}..{first + len(ids)} (status {status})"
            )
        logits = llama.llama_get_logits(session)
        return np.ctypeslib.as_array(logits, shape=(len(ids), vocab)).copy()
    finally:
        llama.llama_batch_free(batch)


def _continue_greedily(
    logits: np.ndarray, position: int, steps: int, decode: Callable[[Sequence[int], int], np.ndarray]
) -> Arrays:
    chosen, margins, after = [], [], []
    for step in range(steps):
        second, best = np.sort(logits)[-2:]
        chosen.append(int(logits.argmax()))
        margins.append(best - second)
        logits = decode([chosen[-1]], position + step)[0]
        after.append(logits)
    return {
        "greedy_tokens": np.array(chosen, np.int32),
        "greedy_margin": np.array(margins, np.float32),
        "greedy_logits": np.array(after, np.float32),
    }


def _name_arrays(captured: Arrays, layers: int, kept: KeptPositions) -> Arrays:
    missing = [
        name for name in (*(f"l_out-{layer}" for layer in range(layers)), "result_norm") if name not in captured
    ]
    if missing:
        raise UnsupportedError(f"llama.cpp's graph has no {', '.join(missing)}: its node names have changed")
    topk = {n: kept.of(values) for n, values in sorted(captured.items()) if n.startswith("ffn_moe_topk-")}
    l_out = np.stack([captured[f"l_out-{layer}"] for layer in range(layers)])
    return {"l_out": kept.of(l_out, axis=1), "result_norm": kept.of(captured["result_norm"]), **topk}


def _find_reason(lines: list[str]) -> str:
    parts = [
        line.strip() for line in "".join(lines).splitlines() if "error" in line.lower() or "fail" in line.lower()
    ]
    return parts[0] if parts else "no reason given"
