"""The builder for architecture files: weights by their GGUF names, values as IR buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zinc_rt.host.errors import InputError, UnsupportedError, UsageError
from zinc_rt.ir.dtypes import ACTIVATION, CACHE_TYPES, INDEX, find_block
from zinc_rt.ir.graph import ABSENT, ENTRIES, Builder, Dim, OpGraph, Shape, Stage
from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.gguf import GGUFFile, Tensor
from zinc_rt.model.hyper import HyperParameters
from zinc_rt.model.pooling import RankHead, find_pooling

LAST_POSITION = "request[slot].last_position"
HIDDEN = "request[slot].hidden"  # after the final norm, of embedding models and with SequenceLimits.mtp
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
DeltaForm = Literal["ids", "inplace", "plain"]
# fmt: off
WEIGHT_DTYPES = frozenset({
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
    "mxfp4", "tq1_0", "tq2_0", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl",
    "iq4_xs",
})
# fmt: on


PAGE_TOKENS, LONGEST_ROW = 16, 8192
STEP_TOKENS = 512
LARGEST_PAGE = 256  # a chunk of attention, which then spans as few pages as with small ones


def choose_page_tokens(ctx: int) -> int:
    """Return the tokens per page: 16, doubled while a slot's row of the page table is longer than 8192 entries."""
    tokens = PAGE_TOKENS
    while ctx > LONGEST_ROW * tokens and tokens < LARGEST_PAGE:
        tokens *= 2
    return tokens


@dataclass(frozen=True, slots=True)
class SequenceLimits:
    """The limits that a graph is built for: concurrent requests, their maximum length, and shared resources.
    `kv_type`: the type of cached keys and values, one of ir.dtypes.CACHE_TYPES. `mtp`: steps also store the keys
    and values of the file's next-token prediction layer (MTP), and return the hidden state that it drafts from."""

    ctx: int
    slots: int = 1
    page_tokens: int = 0
    pages: tuple[int, ...] | None = None
    state_rows: int | None = None
    step_tokens: int = STEP_TOKENS
    rows: int | None = None
    kv_type: str = ACTIVATION
    mtp: bool = False

    def __post_init__(self) -> None:
        if not self.page_tokens:
            object.__setattr__(self, "page_tokens", choose_page_tokens(self.ctx))
        if self.pages is not None:
            object.__setattr__(self, "pages", tuple(self.pages))  # a log's header has a list
        for name, value, minimum in (
            ("ctx", self.ctx, 1),
            ("slots", self.slots, 1),
            ("page_tokens", self.page_tokens, 8),
            *((f"pages[{group}]", pages, 1) for group, pages in enumerate(self.pages or ())),
            ("state_rows", self.recurrent_rows, 2),
            ("step_tokens", self.step_tokens, 1),
            ("rows", 1 if self.rows is None else self.rows, 1),
        ):
            if value < minimum:
                raise UsageError(f"{name} must be at least {minimum}, not {value}")
        if self.kv_type not in CACHE_TYPES:
            raise UsageError(f"kv_type {self.kv_type!r}: expected one of {', '.join(CACHE_TYPES)}")

    @property
    def pages_per_slot(self) -> int:
        return -(-self.ctx // self.page_tokens)

    def group_pages(self, group: int, window: int) -> int:
        """Return the pages in a page group's pool. Layers with a window of `window` tokens keep the pages for
        the window and a step; with 0, for all tokens.
        """
        if self.pages is not None:
            return self.pages[group]
        held = self.pages_per_slot
        if window:
            held = min(held, -(-(window + self.step_tokens) // self.page_tokens) + 1)
        return self.slots * held

    @property
    def recurrent_rows(self) -> int:
        """Return the rows of a buffer of recurrent state."""
        return self.slots + 1 if self.state_rows is None else self.state_rows


@dataclass(frozen=True, slots=True)
class Overrides:
    """Changes to the file's model, each of which is a clamp that reports must list; 0 means no change."""

    lm_head_rows: int = 0
    decode_topk: int = 0  # Qwen hybrids, decode stage only
    gemma4_attn_scale: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """A graph with all its constant inputs."""

    gguf: GGUFFile
    graph: OpGraph
    weights: Mapping[str, Weight]  # views of the file
    constants: Mapping[str, np.ndarray]  # float32 tables
    limits: SequenceLimits
    layers: int
    vocab: int
    width: int
    pooling: str = ""  # of an embedding model, see model/pooling.py; "": the model generates text
    rank_head: RankHead | None = None  # of a model with pooling "rank"

    @property
    def architecture(self) -> str:
        return self.gguf.architecture

    @property
    def whole_sequences(self) -> bool:
        """Return whether every token sees the whole sequence, so that one step must compute all of it."""
        return LAST_POSITION in self.graph.buffers

    @property
    def caches_prompts(self) -> bool:
        """Return whether a prompt may begin with cached tokens. An embedding must depend on the last token's
        hidden state only, and that only on earlier tokens."""
        last = self.pooling == "last" if self.rank_head is None else self.rank_head.last
        return not self.pooling or (last and not self.whole_sequences)

    @property
    def columns(self) -> int:
        """Return the columns of a row of the result: the vocabulary, or the width of an embedding model."""
        return self.width if self.pooling else self.vocab


class ModelBuilder:
    def __init__(
        self,
        gguf: GGUFFile,
        limits: SequenceLimits,
        stage: Stage = "both",
        *,
        delta_form: DeltaForm = "ids",
        overrides: Overrides | None = None,
    ) -> None:
        self.gguf = gguf
        self.hyper = HyperParameters(gguf.architecture, gguf.metadata, str(gguf.path))
        self.limits = limits
        self.stage = stage
        self.delta_form = delta_form
        self.overrides = overrides or Overrides()
        self.builder = Builder(f"{gguf.architecture}-{stage}", stage)
        self.weights: dict[str, Weight] = {}
        self.constants: dict[str, np.ndarray] = {}
        self._read: set[str] = set()  # GGUF names
        self.width = self.hyper.read_positive("embedding_length")
        # Next-token-prediction layers at the end belong to the file but not to the plain forward pass.
        self.layers = self.hyper.read_positive("block_count") - self.hyper.read_integer("nextn_predict_layers", 0)
        if self.layers <= 0:
            raise InputError(f"{gguf.path}: block_count is invalid: it leaves {self.layers} layers")
        if self.layers > len(gguf.tensors):
            raise InputError(
                f"{gguf.path}: block_count implies {self.layers} layers, but the file has only "
                f"{len(gguf.tensors)} tensors"
            )
        self._windows: tuple[int, ...] = (0,)
        self.pooling = ""  # see Model
        self.rank_head: RankHead | None = None
        self._step_buffers()

    @property
    def eps(self) -> float:
        """Return the epsilon of RMS norms."""
        return self.hyper.read_real("attention.layer_norm_rms_epsilon")

    # --- buffers -------------------------------------------------------------------------------------------

    def _step_buffers(self) -> None:
        def step(name: str, *shape: Dim) -> str:
            return self.builder.buffer(name, shape, INDEX, "step")

        self.builder.buffer("step.counts", (8,), INDEX, "step")  # of SYMBOLS, in their order; the rest is 0
        self.token_id = step("request[slot].token_id", "tokens")
        self.position = step("request[slot].position", "tokens")
        self.slot = step("request[slot].slot", "tokens")
        self.row = step("request[slot].logit_row", "rows")

    @property
    def token_type(self) -> str:
        """Return the type of each token. Every step has type 0, as in llama.cpp."""
        return self.builder.buffer("request[slot].token_type", ("tokens",), INDEX, "step")

    @property
    def last_seen_position(self) -> str:
        """Return the last position that each token sees: its own, or its sequence's last one if an embedding
        model's attention is not causal."""
        if not find_pooling(self.gguf) or self.hyper.read_boolean("attention.causal", True):
            return self.position
        if any(self._windows):
            raise UnsupportedError(f"{self.gguf.path}: a window of attention that is not causal is not supported")
        return self.builder.buffer(LAST_POSITION, ("tokens",), INDEX, "step")

    # --- page groups ---------------------------------------------------------------------------------------

    def declare_windows(self, windows: Iterable[int]) -> None:
        """Declare the windows of all layers that own a cache (0: no window), if they are not all 0. Layers with
        equal windows form a page group, because their pages have equal lifetimes."""
        self._windows = tuple(sorted(set(windows)))
        if len(self._windows) > len(ENTRIES):
            raise UnsupportedError(
                f"{self.gguf.path}: layers have attention windows of {', '.join(map(str, self._windows))} tokens "
                f"(0: all), but at most {len(ENTRIES)} different windows are supported"
            )

    def find_page_group(self, window: int) -> int:
        """Return the page group of the layers with a window."""
        return self._windows.index(window)

    def find_page_table(self, window: int) -> str:
        """Return the page table of a window's group, i32 [slots, pages]. The first call makes the graph store the
        step's changes in it."""
        group = self.find_page_group(window)
        suffix = f"_{group}" if group else ""
        table = f"state.page_table{suffix}"
        if not self.builder.has(table):
            shape = (self.limits.slots, self.limits.pages_per_slot)
            self.builder.buffer(table, shape, INDEX, "table")
            entry, value = (
                self.builder.buffer(f"step.table_{what}{suffix}", (ENTRIES[group],), INDEX, "step")
                for what in ("entry", "value")
            )
            self.node(Op.TABLE_STORE, (entry, value, table), (table,), f"table_store{suffix}")
            self.builder.node(Op.BARRIER, (table,), ())
        return table

    # --- recurrent state -----------------------------------------------------------------------------------

    def sequences(self) -> tuple[str, str, str]:
        """Return the operands of recurrent state: each token's sequence in this step, each sequence's source and
        target row."""
        return (
            self.builder.buffer("request[slot].sequence", ("tokens",), INDEX, "step"),
            self.builder.buffer("request[slot].state_source", ("sequences",), INDEX, "step"),
            self.builder.buffer("request[slot].state_target", ("sequences",), INDEX, "step"),
        )

    def state(self, name: str, layer: int, shape: Shape, dtype: str = ACTIVATION) -> str:
        return self.builder.buffer(f"state.{name}[{layer}]", shape, dtype, "state")

    def cache(self, name: str, layer: int, rows: int, columns: Dim, *, head_dim: int) -> str:
        """Declare a cache of keys or values with heads of `head_dim` elements. Raise UnsupportedError if the heads
        are not whole blocks of its type, or rows of it are not whole dwords."""
        dtype = self.limits.kv_type
        elements, size_bytes = find_block(dtype)
        if head_dim % elements or int(columns) // elements * size_bytes % 4:
            raise UnsupportedError(
                f"{self.gguf.path}: --kv-type {dtype}: layer {layer} has heads of {head_dim} elements and rows of "
                f"{columns}; a head must be whole blocks of {elements}, a row whole dwords",
                next="use --kv-type f32 or f16",
            )
        return self.state(name, layer, (rows, columns), dtype)

    def constant(self, name: str, values: np.ndarray) -> str:
        name = self.builder.buffer(f"constant.{name}", values.shape, ACTIVATION, "constant")
        self.constants.setdefault(name, values)
        return name

    def shape(self, name: str) -> Shape:
        return self.builder.spec(name).shape

    def value(
        self, op: Op, inputs: tuple[str, ...], columns: Shape, label: str, *, rows: str = "tokens", **attrs: object
    ) -> str:
        """Add a node with one float result of shape (rows, *columns)."""
        return self.values(op, inputs, ((label, columns, ACTIVATION),), rows=rows, **attrs)[0]

    def values(
        self,
        op: Op,
        inputs: tuple[str, ...],
        results: tuple[tuple[str, Shape, str], ...],
        *,
        rows: str = "tokens",
        **attrs: object,
    ) -> tuple[str, ...]:
        """Add a node with several results, each (label, columns, dtype); the first label names the node."""
        outputs = tuple(
            self.declare_activation(label, columns, dtype, rows=rows) for label, columns, dtype in results
        )
        self.node(op, inputs, outputs, results[0][0], **attrs)
        return outputs

    def node(self, op: Op, inputs: tuple[str, ...], outputs: tuple[str, ...], label: str, **attrs: object) -> None:
        self.builder.node(op, inputs, outputs, layer=_parse_layer(label), label=label, **attrs)  # type: ignore[arg-type]

    def declare_activation(
        self, label: str, columns: Shape, dtype: str = ACTIVATION, *, rows: str = "tokens"
    ) -> str:
        """Declare a value of shape (rows, *columns) under a separate name."""
        return self.builder.buffer(self._make_name(label), (rows, *columns), dtype, "activation")

    def _make_name(self, label: str) -> str:
        stem, _, layer = label.partition("-")
        base = "act." + re.sub(r"[^a-z0-9_]", "_", stem.lower())
        suffix = f"[{layer}]" if layer else ""
        name, second = base + suffix, 1
        while self.builder.has(name):
            second += 1
            name = f"{base}_{second}{suffix}"
        return name

    # --- weights -------------------------------------------------------------------------------------------

    def mark_read(self, *names: str) -> None:
        """Record tensors as applied that are not operands."""
        self._read.update(names)

    def has_weight(self, name: str) -> bool:
        return name in self.gguf.tensors

    def weight(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        optional: bool = False,
        take: tuple[slice, ...] = (),
        part: str = "",
    ) -> str:
        """Return the tensor `name` as an operand, ABSENT if it is optional and missing.

        `take` and `shape` as in `read_weight`; `part` is the GGUF name of a slice as a separate tensor. Raise as
        `read_weight`, and InputError for a missing tensor.
        """
        weight = self.read_weight(name, shape, take=take)
        if weight is None:
            if optional:
                return ABSENT
            raise InputError(
                f"{self.gguf.path}: tensor {name} is missing", next="the file is incomplete: convert it again"
            )
        logical = to_logical_name(part or name)
        self.weights[logical] = weight
        return self.builder.buffer(logical, shape, weight.dtype, "weight")

    def read_weight(self, name: str, shape: tuple[int, ...], *, take: tuple[slice, ...] = ()) -> Weight | None:
        """Return the tensor `name`, None if the file does not have it.

        `take` slices leading dimensions of a merged tensor, or all of them, the last one in elements; `shape` is
        the slice's shape. Raise InputError for another shape, UnsupportedError for a type that cannot be
        dequantised.
        """
        self._read.add(name)
        tensor = self.gguf.tensors.get(name)
        if tensor is None:
            return None
        if tensor.dtype not in WEIGHT_DTYPES:
            raise UnsupportedError(
                f"{self.gguf.path}: {name} has the unsupported type {tensor.dtype}",
                next="convert to one of " + ", ".join(sorted(WEIGHT_DTYPES)),
            )
        if len(take) > len(tensor.shape):
            raise InputError(
                f"{self.gguf.path}: {name} has {len(tensor.shape)} dimensions, expected more than {len(take)}"
            )
        whole_rows = len(take) < len(tensor.shape)
        columns = tensor.shape[-1] if whole_rows else len(range(tensor.shape[-1])[take[-1]])
        raw = tensor.data[take if whole_rows else (*take[:-1], _find_row_bytes(tensor, take[-1]))]
        saw = (*raw.shape[:-1], columns)
        if saw != shape and raw.size and np.prod(saw) == np.prod(shape) and saw[-1] == shape[-1]:
            saw, raw = shape, raw.reshape(*shape[:-1], raw.shape[-1])  # ggml does not keep dimensions of size one
        if saw != shape:
            raise InputError(
                f"{self.gguf.path}: {name} has shape {saw}, but the metadata requires {shape} (rows, columns)",
                next="the file is inconsistent: convert it again",
            )
        return Weight(tensor.dtype, shape, raw)

    # --- values every architecture needs -------------------------------------------------------------------

    def embed(self, label: str = "embd") -> str:
        table = self.weight("token_embd.weight", (self.vocab, self.width))
        return self.value(Op.EMBED, (self.token_id, table), (self.width,), label)

    def embed_rows(self, index: str, name: str, label: str) -> str:
        """Look up rows of another table by an index of each token."""
        tensor = self.gguf.tensors.get(name)
        table = self.weight(name, (tensor.shape[0] if tensor is not None else 1, self.width))
        return self.value(Op.EMBED, (index, table), (self.width,), label)

    @property
    def vocab(self) -> int:
        tensor = self.gguf.tensors.get("token_embd.weight")
        if tensor is None or len(tensor.shape) != 2:
            raise InputError(f"{self.gguf.path}: tensor token_embd.weight is missing or not a matrix")
        return tensor.shape[0]

    def norm(
        self, x: str, weight: str | None, label: str, *, size: int | None = None, eps: float | None = None
    ) -> str:
        """Add an RMS norm of whole rows, or of heads of `size`; `weight` is a GGUF name, or None for a norm
        without a weight."""
        columns = self.shape(x)[1:]
        size = size or int(columns[-1])
        operand = ABSENT if weight is None else self.weight(weight, (size,))
        return self.value(Op.RMS_NORM, (x, operand), columns, label, eps=eps or self.eps, size=size)

    def layer_norm(self, x: str, name: str, label: str) -> str:
        """Add a layer norm of whole rows by `<name>.weight` and, if the file has it, `<name>.bias`."""
        columns = self.shape(x)[1:]
        width = int(columns[-1])
        weight = self.weight(f"{name}.weight", (width,))
        bias = self.weight(f"{name}.bias", (width,), optional=True)
        eps = self.hyper.read_real("attention.layer_norm_epsilon")
        return self.value(Op.LAYER_NORM, (x, weight, bias), columns, label, eps=eps)

    def linear(
        self, x: str, name: str, out: int, label: str, *, take: tuple[slice, ...] = (), part: str = ""
    ) -> str:
        """Add a projection by `<name>.weight`, with `<name>.scale` and `<name>.bias` if the file has them."""
        width = int(self.shape(x)[-1])
        weight = self.weight(f"{name}.weight", (out, width), take=take, part=part and f"{part}.weight")
        bias = self.weight(f"{name}.bias", (out,), optional=True, take=take, part=part and f"{part}.bias")
        scale = self.weight(f"{name}.scale", (1,), optional=True)
        return self.value(Op.MATMUL, (x, weight, bias, scale), (out,), label)

    def add(self, a: str, b: str, label: str) -> str:
        return self.value(Op.ADD, (a, b), self.shape(a)[1:], label)

    def scale(self, x: str, factor: float, label: str, weight: str = ABSENT) -> str:
        return self.value(Op.SCALE, (x, weight), self.shape(x)[1:], label, factor=float(np.float32(factor)))

    def slice(self, x: str, label: str, *, group: int, offset: int, size: int) -> str:
        columns = int(self.shape(x)[-1]) // group * size
        return self.value(Op.SLICE, (x,), (columns,), label, group=group, offset=offset, size=size)

    def rope(
        self, x: str, tables: tuple[str, str], label: str, *, head_dim: int, mode: str, offset: int = 0
    ) -> str:
        return self.value(
            Op.ROPE,
            (x, self.position, *tables),
            self.shape(x)[1:],
            label,
            head_dim=head_dim,
            mode=mode,
            offset=offset,
        )

    def barrier(self, *buffers: str, layer: int) -> None:
        self.builder.node(Op.BARRIER, buffers, (), layer=layer)

    def head(
        self,
        x: str,
        *,
        softcap: float = 0.0,
        scale: float = 1.0,
        layer_norm: bool = False,
        norm: str = "output_norm",
        output: str = "output",
        hidden: bool = False,
    ) -> str:
        """Add the final norm, the vocabulary logits of the requested rows, times `scale`, and the greedy token.
        Return the normed values; `hidden`: they are the output HIDDEN. `norm`, `output`: names of the weights."""
        if layer_norm:
            x = self.layer_norm(x, norm, "result_norm")
        elif hidden:
            weight = self.weight(f"{norm}.weight", (self.width,))
            y = self.builder.buffer(HIDDEN, ("tokens", self.width), ACTIVATION, "output")
            self.node(Op.RMS_NORM, (x, weight), (y,), "result_norm", eps=self.eps, size=self.width)
            x = y
        else:
            x = self.norm(x, f"{norm}.weight", "result_norm")
        normed = x
        if find_pooling(self.gguf):
            self.hidden_head(x)
            return normed
        if scale != 1.0:
            x = self.scale(x, scale, "result_norm_scaled")
        tied = not self.has_weight(f"{output}.weight")
        table = "token_embd.weight" if tied else f"{output}.weight"
        vocab = self.vocab
        first: tuple[slice, ...] = ()
        if 0 < self.overrides.lm_head_rows < vocab:
            vocab, first = self.overrides.lm_head_rows, (slice(0, self.overrides.lm_head_rows),)
        weight = self.weight(table, (vocab, self.width), take=first, part=f"{output}.weight" if first else "")
        bias = self.weight(f"{output}.bias", (vocab,), optional=True, take=first)
        logits = self.builder.buffer("request[slot].logits", ("rows", vocab), ACTIVATION, "output")
        if softcap:
            raw = self.value(Op.LM_HEAD, (x, weight, self.row, bias), (vocab,), "result_output_raw", rows="rows")
            self.node(Op.SOFTCAP, (raw,), (logits,), "result_output", cap=softcap)
        else:
            self.node(Op.LM_HEAD, (x, weight, self.row, bias), (logits,), "result_output")
        self._select_token(logits)
        return normed

    def hidden_head(self, x: str) -> None:
        """Add the result of an embedding model: the hidden state of every token. Those of the requested rows take
        the place of logits. Raise InputError for an unknown kind of pooling, and for a reranker without a head."""
        self.pooling = find_pooling(self.gguf)
        if self.pooling == "rank":
            self.rank_head = self._read_rank_head()
        hidden = self.builder.buffer(HIDDEN, ("tokens", self.width), ACTIVATION, "output")
        self.node(Op.SLICE, (x,), (hidden,), "embd_tokens", group=self.width, offset=0, size=self.width)
        rows = self.builder.buffer("request[slot].logits", ("rows", self.width), ACTIVATION, "output")
        self.node(Op.LOAD_REQUEST_STATE, (hidden, self.row), (rows,), "result_output")
        self._select_token(rows)

    def _read_rank_head(self) -> RankHead:
        labels = len(self.hyper.texts("classifier.output_labels") or ("relevance",))
        output = self.read_weight("cls.output.weight", (labels, self.width))
        if output is None:
            raise InputError(
                f"{self.gguf.path}: pooling_type is 4 (rank), but the tensor cls.output.weight is missing",
                next="convert the reranker again with a current llama.cpp converter",
            )
        return RankHead(
            dense=self.read_weight("cls.weight", (self.width, self.width)),
            dense_bias=self.read_weight("cls.bias", (self.width,)),
            output=output,
            output_bias=self.read_weight("cls.output.bias", (labels,)),
            last=self.hyper.read_boolean("attention.causal", True),
            softmax=self.hyper.architecture == "qwen3",
        )

    def _select_token(self, logits: str) -> None:
        """Add the largest element of each row and the first one that is not finite."""
        token = self.builder.buffer("request[slot].next_token", ("rows",), INDEX, "output")
        nonfinite = self.builder.buffer("request[slot].nonfinite", ("rows",), INDEX, "output")
        self.node(Op.ARGMAX, (logits,), (token, nonfinite), "next_token")

    def model(self, *, whole: bool = True) -> Model:
        """Return the model. `whole`: check that all of the file that changes results was read."""
        if whole:
            self._check_all_read()
            self.hyper.check_unread_keys()
        return Model(
            gguf=self.gguf,
            graph=self.builder.build(),
            weights=self.weights,
            constants=self.constants,
            limits=self.limits,
            layers=self.layers,
            vocab=self.vocab,
            width=self.width,
            pooling=self.pooling,
            rank_head=self.rank_head,
        )

    def _check_all_read(self) -> None:
        """Raise UnsupportedError for a bias, a scale or RoPE factors that are not applied, because ignoring
        them would change every result. Unused matrices are allowed, because files contain spare ones and those of
        next-token-prediction layers.
        """
        for name in sorted(set(self.gguf.tensors) - self._read):
            layer = re.match(r"blk\.(\d+)\.", name)
            matters = name in ROPE_FACTORS or name.endswith((".bias", ".scale"))
            if matters and (layer is None or int(layer[1]) < self.layers):
                raise UnsupportedError(
                    f"{self.gguf.path}: architecture {self.hyper.architecture} does not use the tensor {name}",
                    next="convert the model without it, or with a converter that folds it into the weights",
                )


def _find_row_bytes(tensor: Tensor, columns: slice) -> slice:
    """Return the part of a tensor's stored rows with these columns. Raise UnsupportedError if they are not whole
    blocks."""
    stored = tensor.data.shape[-1]
    if stored == tensor.shape[-1]:
        return columns
    elements, size_bytes = find_block(tensor.dtype)
    first, last, _ = columns.indices(tensor.shape[-1])
    if first % elements or last % elements:
        raise UnsupportedError(
            f"{tensor.name}: columns {first} to {last} are not whole blocks of {elements} elements"
        )
    return slice(first // elements * size_bytes, last // elements * size_bytes)


_GLOBAL = {"token_embd.weight": "model.embed_table", "output.weight": "model.lm_head_weight"}
_GROUPS = ("attn", "ffn", "ssm")


def to_logical_name(gguf_name: str) -> str:
    """Convert `blk.3.attn_q.weight` to `model.attn.q_weight[3]`."""
    if gguf_name in _GLOBAL:
        return _GLOBAL[gguf_name]
    match = re.match(r"blk\.(\d+)\.(.+)", gguf_name)
    if not match:
        return "model." + gguf_name.replace(".", "_")
    layer, rest = match.groups()
    group, _, stem = rest.partition("_")
    if group not in _GROUPS or not stem:
        group, stem = "layer", rest
    return f"model.{group}.{stem.replace('.', '_')}[{layer}]"


def _parse_layer(label: str) -> int | None:
    _, _, layer = label.partition("-")
    return int(layer) if layer else None
