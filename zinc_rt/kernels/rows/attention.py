"""RoPE, the paged cache and attention: nodes to launches. The sources' headers describe the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.caches import accept_cache_types, check_head_blocks, check_one_type, name_kernel
from zinc_rt.kernels.rows.elementwise import make_rowwise_launch, make_slice_launch
from zinc_rt.kernels.rows.matvec import check_projection_weights, make_projection_entries
from zinc_rt.kernels.rows.operands import F32, Buffer, Count, find_last_dim, row_shape
from zinc_rt.kernels.rows.projections import make_rotation_code
from zinc_rt.kernels.rows.tuning import Tuning

PAGE_TOKENS = 16  # ir.op's default
F32_BYTES = 4
CHUNK_TOKENS = 256  # canonical-1's


@dataclass(frozen=True, slots=True)
class AttentionSplit:
    """The distribution of a query's chunks. Each of `workgroups` per head reduces every n-th of at most `chunks`
    chunks separately, and the last of them, or flash_attn_merge, merges them to the same bits as one workgroup."""

    workgroups: int  # a power of two
    chunks: int

    @property
    def list_constants(self) -> tuple[int, int]:
        """Return the constants that a flash_attn_parts kernel has in addition to those of flash_attn."""
        return self.workgroups.bit_length() - 1, self.chunks

    def parts(self, rows: int, value_dim: int) -> Temp:
        """Return temporaries for m, l and o of every chunk of `rows` heads of queries."""
        return Temp("parts", F32_BYTES * rows * self.chunks * (value_dim + 2))

    def arrivals(self, rows: int) -> Temp:
        """Return the number of workgroups that have finished each of `rows` heads of queries."""
        return Temp("arrivals", 4 * rows, zeroed=True)

    def make_merge_launch(
        self, parts: Temp, position: Buffer, out: Buffer, heads: int, value_dim: int, window: int
    ) -> Launch:
        return Launch(
            "flash_attn_merge",
            (parts, position, out),
            (heads, value_dim, self.chunks, window),
            (heads, "tokens", -(-value_dim // 32)),
        )


def choose_split(tuning: Tuning, *, rows: int, keys: int, window: int = 0) -> AttentionSplit | None:
    """Return how to split `rows` heads of queries that may see `keys` keys; None if a second dispatch does not pay
    off: the cache is short, or the queries fill the device."""
    chunks = -(-keys // CHUNK_TOKENS)
    if window:
        chunks = min(chunks, (window + CHUNK_TOKENS - 2) // CHUNK_TOKENS + 1)
    room = tuning.flash_workgroups // rows
    if chunks <= tuning.flash_whole_chunks or room < 2:
        return None
    return AttentionSplit(min(1 << (chunks - 1).bit_length(), 1 << (room.bit_length() - 1)), chunks)


def pack_pair_bytes(mode: str, pairs: int) -> tuple[int, int]:
    """Return the byte distances from a pair's first element to the next pair's, and to its own second element."""
    return {"norm": (8, 4), "neox": (4, 4 * pairs)}[mode]


def make_rope_launch(
    x: Buffer,
    position: Buffer,
    cos: Buffer,
    sin: Buffer,
    y: Buffer,
    *,
    tokens: Count,
    columns: int,
    head_dim: int,
    pairs: int,
    mode: str,
    offset: int = 0,
) -> Launch:
    """Launch y = ROPE of x, f32 [tokens, columns]; cos and sin f32 (ctx, pairs), position i32 [tokens]."""
    return Launch(
        "rope",
        (x, y, position, cos, sin),
        (head_dim, offset, pairs, *pack_pair_bytes(mode, pairs), columns),
        (columns // head_dim, tokens, 1),
    )


def make_kv_write_launch(
    tuning: Tuning,
    k: Buffer,
    v: Buffer,
    position: Buffer,
    slot: Buffer,
    page_table: Buffer,
    kv_k: Buffer,
    kv_v: Buffer,
    *,
    tokens: Count,
    columns: tuple[int, int],
    page_tokens: int,
    pages: int,
    dtype: str = ACTIVATION,
) -> Launch:
    """Launch the write of k f32 [tokens, columns[0]] and v f32 [tokens, columns[1]] to the cache rows of their
    slot and position, elements of `dtype`."""
    return Launch(
        name_kernel("kv_write", dtype),
        (k, kv_k, v, kv_v, position, slot, page_table),
        (*columns, page_tokens.bit_length() - 1, pages),
        (2, tokens, -(-max(columns) // tuning.copy_columns)),
    )


def rope(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, position, cos, sin = (Ref(name) for name in node.inputs)
    tokens, columns = row_shape(graph, node.inputs[0])
    yield make_rope_launch(
        x,
        position,
        cos,
        sin,
        Ref(node.outputs[0]),
        tokens=tokens,
        columns=columns,
        head_dim=int(node.attrs["head_dim"]),
        pairs=find_last_dim(graph, node.inputs[2]),
        mode=str(node.attrs["mode"]),
        offset=int(node.attrs.get("offset", 0)),
    )


def kv_write(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    k, v, position, slot, page_table, kv_k, kv_v = (Ref(name) for name in node.inputs)
    tokens, k_columns = row_shape(graph, node.inputs[0])
    yield make_kv_write_launch(
        tuning,
        k,
        v,
        position,
        slot,
        page_table,
        kv_k,
        kv_v,
        tokens=tokens,
        columns=(k_columns, row_shape(graph, node.inputs[1])[1]),
        page_tokens=_find_page_tokens(node),
        pages=find_last_dim(graph, node.inputs[4]),
        dtype=graph.buffers[kv_k.name].dtype,
    )


def norm_rope_kv_write(
    tuning: Tuning,
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    qkv: tuple[Buffer, Buffer, Buffer] | None = None,
) -> Iterator[Launch | Sync]:
    """Return the launches of a node, with the inputs `qkv` instead of its first three if they are given."""
    *names, q_weight, k_weight, cos, sin, position, slot, page_table, kv_k, kv_v = node.inputs
    head_dim, page_tokens = int(node.attrs["head_dim"]), _find_page_tokens(node)
    skip = int(node.attrs.get("q_skip", 0))
    pairs = find_last_dim(graph, cos)
    tokens, columns = row_shape(graph, node.outputs[0])
    k_columns, v_columns = (row_shape(graph, name)[1] for name in (kv_k, kv_v))
    heads = columns // head_dim, k_columns // head_dim
    q, k, v = qkv or (Ref(name) for name in names)
    if skip and not tuning.skips_columns:
        q, spread = Temp("heads", F32_BYTES * capacity["tokens"] * columns), q
        group = head_dim + skip
        yield make_slice_launch(tuning, spread, q, tokens, heads[0] * group, (group, 0, head_dim))
        yield SYNC
    yield Launch(
        name_kernel("norm_rope_kv", graph.buffers[kv_k].dtype),
        (
            *(q, k, v),
            *(None if name == ABSENT else Ref(name) for name in (q_weight, k_weight)),
            *(Ref(name) for name in (cos, sin, position, slot, page_table, kv_k, kv_v, node.outputs[0])),
        ),
        (
            head_dim,
            float(node.attrs["eps"]),
            pairs,
            *pack_pair_bytes(str(node.attrs["mode"]), pairs),
            *heads,
            v_columns,
            page_tokens.bit_length() - 1,
            find_last_dim(graph, page_table),
            *((skip,) if tuning.skips_columns else ()),
        ),
        (sum(heads) - (-v_columns // tuning.copy_columns), tokens, 1),
    )


def flash_attn(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    name = node.inputs[6] if node.op is Op.FLASH_ATTN else ABSENT
    gate: Buffer | None = Ref(name) if name else None
    heads, value_dim = int(node.attrs["heads"]), int(node.attrs["value_dim"])
    split = _split(tuning, node, graph, capacity)
    if gate is None or split is not None:
        yield from _attention(tuning, node, graph, capacity, Ref(node.outputs[0]), gate)
        return
    columns = heads * value_dim
    attended = Temp("attended", F32_BYTES * capacity["tokens"] * columns)
    if skip := int(node.attrs.get("gate_skip", 0)):
        gate, groups = Temp("gate", F32_BYTES * capacity["tokens"] * columns), gate
        group = value_dim + skip
        yield make_slice_launch(tuning, groups, gate, "tokens", heads * group, (group, skip, value_dim))
    yield from _attention(tuning, node, graph, capacity, attended, None)
    yield SYNC
    out = Ref(node.outputs[0])
    yield make_rowwise_launch(tuning, "sigmoid_mul", (attended, gate, out), "tokens", columns)


def _split(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> AttentionSplit | None:
    """Return how to split the node's queries; None if it is not split."""
    page_tokens, pages = _find_page_tokens(node), find_last_dim(graph, node.inputs[5])
    head_dim, value_dim = int(node.attrs["head_dim"]), int(node.attrs["value_dim"])
    if choose_flash_width(tuning, tuning.flash_widths, head_dim, value_dim, page_tokens=page_tokens) is None:
        return None
    rows, window = int(node.attrs["heads"]) * capacity["tokens"], int(node.attrs.get("window", 0))
    return choose_split(tuning, rows=rows, keys=pages * page_tokens, window=window)


def _attention(
    tuning: Tuning,
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    out: Buffer,
    gate: Buffer | None,
) -> Iterator[Launch | Sync]:
    """Attend into `out`; a gate is for split queries only."""
    q, kv_k, kv_v, position, slot, page_table = (Ref(name) for name in node.inputs[:6])
    heads, kv_heads, head_dim, value_dim = (
        int(node.attrs[name]) for name in ("heads", "kv_heads", "head_dim", "value_dim")
    )
    group = heads // kv_heads
    tokens = row_shape(graph, node.inputs[0])[0]
    window, page_tokens = int(node.attrs.get("window", 0)), _find_page_tokens(node)
    constants = (float(node.attrs["scale"]), window, page_tokens.bit_length() - 1)
    tail = find_last_dim(graph, node.inputs[5]), float(node.attrs.get("cap", 0.0))  # pages of a slot, cap
    grid = group, tokens, kv_heads
    width = choose_flash_width(tuning, tuning.flash_widths, head_dim, value_dim, page_tokens=page_tokens)
    dtype = graph.buffers[kv_k.name].dtype
    sinks = Ref(node.inputs[-1]) if node.inputs[-1] else None
    inputs = q, kv_k, kv_v, position, slot, page_table
    if width is None:
        yield Launch(
            name_kernel("flash_attn_any", dtype),
            (q, kv_k, None, kv_v, position, slot, page_table, out, sinks),
            (group, kv_heads, head_dim, 0, value_dim, *constants, *tail),
            grid,
        )
        return
    shape = (group, kv_heads, head_dim, value_dim, *constants, *tail)
    split = _split(tuning, node, graph, capacity)
    if split is None:
        yield Launch(name_kernel(f"flash_attn_{width}", dtype), (*inputs, out, sinks), shape, grid)
        return
    rows = heads * capacity["tokens"]
    yield Launch(
        name_kernel(f"flash_attn_parts_{width}", dtype),
        (*inputs, split.parts(rows, value_dim), out, gate, split.arrivals(rows), sinks),
        (*shape, *split.list_constants, int(node.attrs.get("gate_skip", 0))),
        (group, tokens, kv_heads * split.workgroups),
    )


def _find_page_tokens(node: Node) -> int:
    return int(node.attrs.get("page_tokens", PAGE_TOKENS))


def choose_flash_width(
    tuning: Tuning, widths: tuple[int, ...], *dims: int, others: tuple[int, ...] = (), page_tokens: int
) -> int | None:
    """Return the narrowest of `widths` that fits every one of `dims`; None if no kernel supports these, `others`
    (whose size does not matter), or pages this small."""
    if any(dim % tuning.flash_multiple for dim in (*dims, *others)) or page_tokens < tuning.flash_batch:
        return None
    return next((width for width in widths if width >= max(dims)), None)


def check_write(node: Node, graph: OpGraph) -> str | None:
    """Return why the node's caches cannot be read or written: their pages' size, or their types."""
    page_tokens = _find_page_tokens(node)
    if page_tokens & (page_tokens - 1):
        return f"page_tokens is {page_tokens}, expected a power of two"
    return check_one_type(node, graph) or check_head_blocks(node, graph)


def check_flash(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    head_dim, value_dim = int(node.attrs["head_dim"]), int(node.attrs["value_dim"])
    if "flash_attn_any" not in tuning.own_kernels and max(head_dim, value_dim) > tuning.flash_widths[-1]:
        return f"head_dim {head_dim}, value_dim {value_dim}: expected 1 to {tuning.flash_widths[-1]}"
    return check_write(node, graph)


def _check_rotation(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    for name in node.inputs[5:9]:
        if name != ABSENT and graph.buffers[name].dtype != "f32":
            return f"{name} is {graph.buffers[name].dtype}, not f32"
    return check_write(node, graph) or check_projection_weights(tuning, node, graph, "cos", "sin")


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    entries = (
        Entry(Op.KV_WRITE_BATCHED, partial(kv_write, tuning), tuning.orderings, F32, rejects=check_write),
        Entry(
            Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            partial(norm_rope_kv_write, tuning),
            tuning.orderings,
            F32,
            rejects=check_write,
        ),
        *make_projection_entries(
            tuning,
            {Op.QKV_FUSED_ROPE_KV_WRITE: make_rotation_code(partial(norm_rope_kv_write, tuning))},
            partial(_check_rotation, tuning),
        ),
        *(
            Entry(op, partial(flash_attn, tuning), tuning.orderings, F32, rejects=partial(check_flash, tuning))
            for op in (Op.FLASH_ATTN, Op.FLASH_ATTN_BATCHED)
        ),
    )
    return Entry(Op.ROPE, rope, tuning.orderings, F32), *accept_cache_types(entries)
