"""Goldens from llama.cpp itself: its logits and chosen graph nodes for one prompt, through llama-cpp-python.

The settings make it comparable: KV cache in F32, no flash attention, no repacked weights, one thread.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType, GGUFValueType

from zinc_rt.errors import InputError, UnsupportedError, UsageError
from zinc_rt.golden.format import write_golden
from zinc_rt.golden.llama_cpp_gelu import ExactGelu
from zinc_rt.model.gguf import digest, read_gguf

CAPTURED = re.compile(r"l_out-\d+|result_norm|ffn_moe_topk-\d+")
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
    command: str | None = None,
) -> Arrays:
    """Run `tokens` through llama.cpp, continue greedily for `steps`, write the arrays to `out_npz`, return them.

    ids int32 [T], logits f32 [T, V], greedy_tokens int32 [steps], greedy_margin f32 [steps] (best minus second
    where the token was chosen), greedy_logits f32 [steps, V] (after each token), l_out f32 [L, T, D],
    result_norm f32 [T, D], ffn_moe_topk-N int32 [T, k]. `dequantised` adds logits_deq and so on, all but ids and
    greedy_margin: the same weights in F32. `context` is llama.cpp's n_ctx. A model with GELU gets these as
    *_exactgelu too, or its *_deq in exact GELU: llama_cpp_gelu.py says why.
    `command`, where given, is kept in meta: what made the file.

    UnsupportedError: llama-cpp-python is missing, or cannot load the model. OutputError: cannot write `out_npz`.
    """
    model, out_npz = Path(model), Path(out_npz)
    llama = _llama_cpp()
    gguf_file = read_gguf(model)  # refuses what would bring llama.cpp down
    architecture = gguf_file.architecture
    arrays = _run(llama, model, tokens, steps, context)
    exact_gelu = architecture.startswith(GELU_ARCHITECTURES)
    if dequantised:
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder, "f32.gguf")
            write_dequantised(model, plain)
            arrays |= _variant(_run(llama, plain, tokens, steps, context, exact_gelu=exact_gelu), "_deq")
    elif exact_gelu:
        arrays |= _variant(_run(llama, model, tokens, steps, context, exact_gelu=True), "_exactgelu")
    meta = {
        "source": "llama-cpp",
        "llama_cpp": _version(llama),
        "arch": architecture,
        "model": model.name,
        "model_digest": digest(gguf_file),
        "n_ctx": context,
        "settings": f"cpu, n_ctx={context}, kv f32, flash_attn off, repack off, 1 thread",
        "logit_std": float(arrays["logits"].std()),
        "min_greedy_margin": float(arrays["greedy_margin"].min()) if steps else None,
    }
    if command is not None:
        meta["command"] = command
    write_golden(out_npz, arrays, meta)
    return arrays


def _variant(arrays: Arrays, suffix: str) -> Arrays:
    return {f"{name}{suffix}": array for name, array in arrays.items() if name not in ("ids", "greedy_margin")}


def write_dequantised(model: Path, out: Path) -> None:
    """The model at `model` with every quantised or half tensor as F32; metadata as it was."""
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


def _llama_cpp() -> ModuleType:
    try:
        import llama_cpp
    except ImportError as error:
        raise UnsupportedError(
            "goldens from llama.cpp need llama-cpp-python", next="pip install zinc-rt[llama-cpp]"
        ) from error
    return llama_cpp


def _version(llama: ModuleType) -> str:
    ask = getattr(llama, "llama_version", None)  # newer than the oldest llama-cpp-python we accept
    own = f"llama-cpp-python {llama.__version__}"
    return own if ask is None else f"{ask().decode()}, {own}"


class _Tensor(ctypes.Structure):
    """The front of struct ggml_tensor (ggml/include/ggml.h); the rest is read through functions."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


DTYPES = {GGMLQuantizationType.F32: np.dtype(np.float32), GGMLQuantizationType.I32: np.dtype(np.int32)}


class _Capture:
    """Copies the graph nodes whose names match CAPTURED while `on`."""

    def __init__(self, llama: ModuleType, *, exact_gelu: bool) -> None:
        from llama_cpp._ggml import libggml

        self.arrays: Arrays = {}
        self.on = True
        self.error: Exception | None = None
        self.lib = libggml
        self.lib.ggml_get_name.argtypes = [ctypes.c_void_p]
        self.lib.ggml_get_name.restype = ctypes.c_char_p
        self.lib.ggml_nbytes.argtypes = [ctypes.c_void_p]
        self.lib.ggml_nbytes.restype = ctypes.c_size_t
        size_t = ctypes.c_size_t
        self.lib.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, size_t, size_t]
        self.lib.ggml_backend_tensor_get.restype = None
        self.gelu = ExactGelu(self.lib, self._read) if exact_gelu else None
        self.callback = llama.ggml_backend_sched_eval_callback(self._seen)  # must outlive the context

    def _seen(self, tensor: int, ask: bool, _user_data: object) -> bool:
        """llama.cpp asks whether a node is wanted, and calls again once it is computed."""
        try:
            name = self.lib.ggml_get_name(tensor).decode()
            wanted = self.on and CAPTURED.fullmatch(name) is not None
            if self.gelu is not None:
                (self.gelu.before if ask else self.gelu.after)(tensor)
            if wanted and not ask:
                self.arrays[name] = self._read(tensor)
        except Exception as error:  # must not cross the C frames above; raised again by check()
            self.error = error
            return False
        return wanted or self.gelu is not None if ask else True

    def _read(self, address: int) -> np.ndarray:
        tensor = _Tensor.from_address(address)
        dtype = DTYPES[GGMLQuantizationType(tensor.type)]
        raw = np.empty(self.lib.ggml_nbytes(address), np.uint8)
        self.lib.ggml_backend_tensor_get(address, raw.ctypes.data, 0, raw.nbytes)
        strided = np.lib.stride_tricks.as_strided(
            raw.view(dtype), shape=tuple(tensor.ne)[::-1], strides=tuple(tensor.nb)[::-1]
        )
        single = tuple(axis for axis in (0, 1) if strided.shape[axis] == 1)
        return strided.squeeze(single).copy()  # (tokens, width), or more where there is more

    def check(self) -> None:
        if self.error is not None:
            raise self.error
        if self.gelu is not None and not self.gelu.replaced:
            raise UnsupportedError("llama.cpp's graph has no GELU node: its operations have changed")


@contextmanager
def _quiet(llama: ModuleType) -> Iterator[list[str]]:
    """Keeps llama.cpp's log out of the terminal and in the list."""
    lines: list[str] = []

    def keep(_level: int, text: bytes, _user_data: object) -> None:
        lines.append(text.decode(errors="replace"))

    callback = llama.llama_log_callback(keep)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        yield lines
    finally:
        llama.llama_log_set(_silence(llama), ctypes.c_void_p(0))


@cache
def _silence(llama: ModuleType) -> Callable[..., None]:
    """llama.cpp holds the last log callback until the process ends, so this one does too."""
    silence: Callable[..., None] = llama.llama_log_callback(lambda *_: None)
    return silence


def _run(
    llama: ModuleType, model: Path, tokens: Sequence[int], steps: int, context: int, *, exact_gelu: bool = False
) -> Arrays:
    with ExitStack() as stack:
        lines = stack.enter_context(_quiet(llama))
        llama.llama_backend_init()
        model_settings = llama.llama_model_default_params()
        model_settings.n_gpu_layers = 0
        model_settings.use_extra_bufts = False
        loaded = llama.llama_model_load_from_file(str(model).encode(), model_settings)
        if not loaded:
            raise UnsupportedError(f"{model}: llama.cpp cannot load it: {_reason(lines)}")
        stack.callback(llama.llama_model_free, loaded)
        vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(loaded))
        _check(model, tokens, steps, context, vocab)
        capture = _Capture(llama, exact_gelu=exact_gelu)
        session = llama.llama_init_from_model(loaded, _context_settings(llama, context, capture))
        if not session:
            raise UnsupportedError(f"{model}: llama.cpp made no context: {_reason(lines)}")
        stack.callback(llama.llama_free, session)

        def decode(ids: Sequence[int], first: int) -> np.ndarray:
            return _decode(llama, session, ids, first, vocab)

        arrays: Arrays = {"ids": np.array(tokens, np.int32), "logits": decode(tokens, 0)}
        capture.check()
        capture.on = False
        arrays |= _continue(arrays["logits"][-1], len(tokens), steps, decode)
        capture.check()
        return arrays | _named(capture.arrays, llama.llama_model_n_layer(loaded))


def _context_settings(llama: ModuleType, context: int, capture: _Capture) -> ctypes.Structure:
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


def _check(model: Path, tokens: Sequence[int], steps: int, context: int, vocab: int) -> None:
    if not tokens or steps < 0 or len(tokens) + steps > context:
        raise UsageError(f"{len(tokens)} tokens and {steps} steps do not fit into a context of {context}")
    if min(tokens) < 0 or max(tokens) >= vocab:
        raise InputError(f"{model}: token ids run to {vocab - 1}, the prompt holds {min(tokens)}..{max(tokens)}")


def _decode(llama: ModuleType, session: object, ids: Sequence[int], first: int, vocab: int) -> np.ndarray:
    """Logits float32 (len(ids), vocab)."""
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


def _continue(
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


def _named(captured: Arrays, layers: int) -> Arrays:
    missing = [
        name for name in (*(f"l_out-{layer}" for layer in range(layers)), "result_norm") if name not in captured
    ]
    if missing:
        raise UnsupportedError(f"llama.cpp's graph has no {', '.join(missing)}: its node names have changed")
    topk = {name: values for name, values in sorted(captured.items()) if name.startswith("ffn_moe_topk-")}
    l_out = np.stack([captured[f"l_out-{layer}"] for layer in range(layers)])
    return {"l_out": l_out, "result_norm": captured["result_norm"], **topk}


def _reason(lines: list[str]) -> str:
    said = [
        line.strip() for line in "".join(lines).splitlines() if "error" in line.lower() or "fail" in line.lower()
    ]
    return said[0] if said else "it gave no reason"
