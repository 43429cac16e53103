"""Golden files: the values that an engine computes for a model, as an .npz; for the layout see
docs/golden.md."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.host.files import write_atomically
from zinc_rt.host.input_files import make_read_error

FORMAT = 1
_AGAIN = "download it again, or create it: zinc-rt golden make --help"
# What the same weights give in plain float32 comes first: nothing else can be compared tightly.
VARIANTS = ("_deq", "_exactgelu", "")
FIXED = ("ids", "rows", "logits", "l_out", "greedy_tokens", "greedy_logits", "greedy_margin", "result_norm")
# l_out-N stands in `l_out`; of the values without a layer those are read that an importer found in the graph.
NODE = re.compile(r"(?!l_out-|ffn_moe_topk-)[A-Za-z_][\w.]*-\d+|result_norm")
UNREADABLE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
EXPERTS = re.compile(r"ffn_moe_topk-\d+")
N_CTX = re.compile(r"n_ctx=(\d+)")
OURS = "zinc-rt"  # what meta's source begins with where this runtime computed the arrays


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden's arrays: ids i32 [T], logits f32 [T, V]; if present l_out f32 [L, T, D], greedy_tokens i32
    [N] and the logits after each f32 [N, V], experts of layer N i32 [T, k], further values by label f32
    [T, ...]. `variant` is the selected variant of the arrays: dequantised weights, exact GELU, or as
    computed. If the golden has `rows` i32 [R] (increasing prompt positions), an array may contain only these R of
    its T rows.
    """

    path: Path
    ids: np.ndarray
    logits: np.ndarray
    variant: str
    l_out: np.ndarray | None = None
    rows: np.ndarray | None = None
    greedy_tokens: np.ndarray | None = None
    greedy_logits: np.ndarray | None = None
    nodes: Mapping[str, np.ndarray] = field(default_factory=dict)
    experts: Mapping[int, np.ndarray] = field(default_factory=dict)
    quantised: Golden | None = None  # the engine's own path over quantised activations, beside `_deq`
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Return the name of the engine that created it."""
        version = self.meta.get("llama_cpp")
        return f"llama.cpp {version}" if version else str(self.meta.get("source", "unknown source"))

    @property
    def ordering(self) -> str:
        """Return the arithmetic ordering, for goldens of this runtime; empty for another engine's golden."""
        return "" if self.foreign else str(self.meta.get("ordering", ""))

    @property
    def kv_type(self) -> str:
        """Return the type of cached keys and values, for goldens of this runtime; f32 for another engine's."""
        return "f32" if self.foreign else str(self.meta.get("kv_type", "f32"))

    @property
    def foreign(self) -> bool:
        """Return whether another engine computed it, so that it cannot be recreated here."""
        return not str(self.meta.get("source")).startswith(OURS)

    @property
    def digests(self) -> dict[str, str]:
        """Return the digests of whole arrays by label, as computed by golden.digests, including arrays
        whose values are not stored."""
        recorded = self.meta.get("digests")
        return recorded if isinstance(recorded, dict) else {}

    @property
    def ctx(self) -> int | None:
        """Return the context length that it was computed with; older goldens contain it only as text."""
        recorded = self.meta.get("n_ctx")
        in_words = N_CTX.search(str(self.meta.get("settings", "")))
        return recorded if isinstance(recorded, int) else int(in_words[1]) if in_words else None


def read_golden(path: str | Path) -> Golden:
    """Read a golden from its file. Raises InputError for a missing, truncated, or foreign file, or another
    format version."""
    path = Path(path)
    arrays = read_arrays(path)
    meta = _read_meta(path, arrays)
    if meta.get("format", FORMAT) != FORMAT:
        raise InputError(
            f"{path}: golden format {meta['format']}; this build reads {FORMAT}",
            next=f"recreate it: {meta.get('command', 'zinc-rt golden make --model M')}",
        )
    variant = next((v for v in VARIANTS if f"logits{v}" in arrays), None)
    if variant is None:
        raise InputError(
            f"{path}: the array logits is missing; this is not a golden", next="zinc-rt golden import --help"
        )
    golden = _build_golden(path, arrays, meta, variant)
    if variant == "_deq" and "logits" in arrays:
        return replace(golden, quantised=_build_golden(path, arrays, meta, ""))
    return golden


def _build_golden(path: Path, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], variant: str) -> Golden:
    ids = _require_array(path, arrays, "ids", 1).astype(np.int32)
    rows = _read_rows(path, arrays, len(ids))
    counts = {len(ids)} if rows is None else {len(ids), len(rows)}
    tokens = " or ".join(map(str, sorted(counts)))
    logits = _require_array(path, arrays, f"logits{variant}", 2).astype(np.float32)
    if len(logits) not in counts:
        raise InputError(f"{path}: has {len(ids)} ids, but logits for {len(logits)} positions")
    l_out = arrays.get(f"l_out{variant}")
    if l_out is not None and (l_out.ndim != 3 or l_out.shape[1] not in counts):
        raise InputError(f"{path}: l_out{variant} has shape {l_out.shape}, expected (layers, {tokens}, width)")
    greedy, after = (arrays.get(f"greedy_{what}{variant}") for what in ("tokens", "logits"))
    if after is not None and (greedy is None or after.shape != (len(greedy), logits.shape[1])):
        raise InputError(
            f"{path}: greedy_logits{variant} has shape {after.shape}, expected (steps, {logits.shape[1]})"
        )
    return Golden(
        path=path,
        ids=ids,
        logits=logits,
        variant=variant,
        rows=rows,
        l_out=None if l_out is None else l_out.astype(np.float32),
        greedy_tokens=greedy,
        greedy_logits=None if after is None else after.astype(np.float32),
        nodes=_read_nodes(path, arrays, variant, counts, meta),
        experts=_read_experts(path, arrays, variant, counts),
        meta=meta,
    )


def write_golden(path: str | Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Write the file atomically. Raises OutputError with the reason."""
    named: dict[str, Any] = {**arrays, "meta": np.array(json.dumps({"format": FORMAT, **meta}))}
    write_atomically(path, lambda file: np.savez_compressed(file, **named))


def _read_rows(path: Path, arrays: dict[str, np.ndarray], tokens: int) -> np.ndarray | None:
    if "rows" not in arrays:
        return None
    rows = _require_array(path, arrays, "rows", 1)
    whole = np.issubdtype(rows.dtype, np.integer) and 0 < len(rows) < tokens
    if not whole or (np.diff(rows) <= 0).any() or rows[0] < 0 or rows[-1] >= tokens:
        raise InputError(f"{path}: expected fewer rows than the {tokens} positions, in increasing order from 0")
    return rows.astype(np.int32)


def _read_experts(
    path: Path, arrays: dict[str, np.ndarray], variant: str, counts: set[int]
) -> dict[int, np.ndarray]:
    """Return the experts by layer. Experts selected from re-quantised activations are not comparable with the
    dequantised model.
    """
    experts = {
        int(name.removesuffix(variant).rpartition("-")[2]): array
        for name, array in arrays.items()
        if EXPERTS.fullmatch(name.removesuffix(variant)) and name.endswith(variant)
    }
    for layer, array in experts.items():
        if array.ndim != 2 or len(array) not in counts:
            raise InputError(f"{path}: ffn_moe_topk-{layer} has shape {array.shape}, expected one row per token")
    return experts if experts or variant in ("", "_deq") else _read_experts(path, arrays, "", counts)


def _read_nodes(
    path: Path, arrays: dict[str, np.ndarray], variant: str, counts: set[int], meta: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Return the other arrays: values of the graph, by label."""
    nodes = {}
    further = meta.get("nodes_without_layer", ())
    for name, array in arrays.items():
        label = name.removesuffix(variant)
        if not name.endswith(variant) or not (NODE.fullmatch(label) or label in further):
            continue
        if not array.ndim or len(array) not in counts or not np.issubdtype(array.dtype, np.number):
            expected = " or ".join(map(str, sorted(counts)))
            raise InputError(
                f"{path}: {name} is {array.dtype}{list(array.shape)}, expected numbers in {expected} rows"
            )
        nodes[label] = array.astype(np.float32)
    return nodes


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read every array of an .npz. Raises InputError for a missing, truncated or foreign file, or one that
    contains objects."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path}: contains a single array, not an .npz archive of named arrays")
        with archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise make_read_error(path, error, next="zinc-rt golden list") from error
    except UNREADABLE as error:
        raise InputError(f"{path}: not a readable golden: {_format_reason(path, error)}", next=_AGAIN) from error


def _format_reason(path: Path, error: BaseException) -> str:
    """Return the reason. NumPy's advice to load unsafely is omitted for files that are not archives."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    with path.open("rb") as file:
        begins = file.read(4)
    if begins != b"PK\x03\x04":
        return f"it begins with {begins!r}, an .npz with b'PK\\x03\\x04'"
    return str(error)


def _read_meta(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if "meta" not in arrays:
        return {}
    try:
        meta = json.loads(str(arrays["meta"]))
    except ValueError as error:
        raise InputError(f"{path}: the array meta is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise InputError(f"{path}: meta is {type(meta).__name__}, expected an object")
    return meta


def _require_array(path: Path, arrays: dict[str, np.ndarray], name: str, dimensions: int) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.ndim != dimensions or not np.issubdtype(array.dtype, np.number):
        saw = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise InputError(f"{path}: array {name} is {saw}, expected numbers in {dimensions} dimensions")
    return array
