"""RoPE, the paged cache and attention on gfx1201: nodes to launches. The sources' headers describe the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import ABSENT, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.elementwise_rows import Buffer, Count, row_shape
from zinc_rt.kernels.gfx1201.norm_rows import norm_launch
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp

ORDERINGS = frozenset({"canonical-1"})
WEIGHTS = frozenset({"f32"})
COPY_COLUMNS = 512  # of one row to a workgroup; kv_write.s
FLASH_WIDTHS = (128, 512)  # longest head of each flash_attn kernel
PAGE_TOKENS = 16  # ir.op's default
BATCH_KEYS = 8  # neighbours that flash_attn.inc takes from one page


def rope_launch(
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
    """y = ROPE of x, f32 [tokens, columns]; cos and sin f32 (ctx, pairs), position i32 [tokens]."""
    step, second = {"norm": (8, 4), "neox": (4, 4 * pairs)}[mode]
    return Launch(
        "rope",
        (x, y, position, cos, sin),
        (head_dim, offset, pairs, step, second, columns),
        (columns // head_dim, tokens, 1),
    )


def kv_write_launch(
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
) -> Launch:
    """k f32 [tokens, columns[0]] and v f32 [tokens, columns[1]] into the cache rows of their slot and position."""
    return Launch(
        "kv_write",
        (k, kv_k, v, kv_v, position, slot, page_table),
        (*columns, page_tokens.bit_length() - 1, pages),
        (2, tokens, -(-max(columns) // COPY_COLUMNS)),
    )


def rope(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, position, cos, sin = (Ref(name) for name in node.inputs)
    tokens, columns = row_shape(graph, node.inputs[0])
    yield rope_launch(
        x,
        position,
        cos,
        sin,
        Ref(node.outputs[0]),
        tokens=tokens,
        columns=columns,
        head_dim=int(node.attrs["head_dim"]),
        pairs=_last_dim(graph, node.inputs[2]),
        mode=str(node.attrs["mode"]),
        offset=int(node.attrs.get("offset", 0)),
    )


def kv_write(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    k, v, position, slot, page_table, kv_k, kv_v = (Ref(name) for name in node.inputs)
    tokens, k_columns = row_shape(graph, node.inputs[0])
    yield kv_write_launch(
        k,
        v,
        position,
        slot,
        page_table,
        kv_k,
        kv_v,
        tokens=tokens,
        columns=(k_columns, row_shape(graph, node.inputs[1])[1]),
        page_tokens=_page_tokens(node),
        pages=_last_dim(graph, node.inputs[4]),
    )


def norm_rope_kv_write(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    """The unfused launches: the same bits, two temporaries for q and one for k."""
    q, k, v, q_weight, k_weight, cos, sin, position, slot, page_table, kv_k, kv_v = node.inputs
    tokens, q_columns = row_shape(graph, q)
    k_columns, v_columns = (row_shape(graph, name)[1] for name in (k, v))
    head_dim, mode = int(node.attrs["head_dim"]), str(node.attrs["mode"])
    values: dict[str, Buffer] = {q: Ref(q), k: Ref(k)}
    for name, weight, columns in ((q, q_weight, q_columns), (k, k_weight, k_columns)):
        if weight != ABSENT:
            normed = Temp(f"normed_{name}", 4 * columns * capacity["tokens"])
            yield norm_launch(
                values[name],
                Ref(weight),
                normed,
                rows=tokens,
                columns=columns,
                size=head_dim,
                eps=float(node.attrs["eps"]),
            )
            values[name] = normed
    yield SYNC
    rotated = Temp("rotated_k", 4 * k_columns * capacity["tokens"])
    for name, out, columns in ((q, Ref(node.outputs[0]), q_columns), (k, rotated, k_columns)):
        yield rope_launch(
            values[name],
            Ref(position),
            Ref(cos),
            Ref(sin),
            out,
            tokens=tokens,
            columns=columns,
            head_dim=head_dim,
            pairs=_last_dim(graph, cos),
            mode=mode,
        )
    yield SYNC
    yield kv_write_launch(
        rotated,
        Ref(v),
        Ref(position),
        Ref(slot),
        Ref(page_table),
        Ref(kv_k),
        Ref(kv_v),
        tokens=tokens,
        columns=(k_columns, v_columns),
        page_tokens=_page_tokens(node),
        pages=_last_dim(graph, page_table),
    )


def flash_attn(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    q, kv_k, kv_v, position, slot, page_table = (Ref(name) for name in node.inputs)
    heads, kv_heads, head_dim, value_dim = (
        int(node.attrs[name]) for name in ("heads", "kv_heads", "head_dim", "value_dim")
    )
    group = heads // kv_heads
    width = next(width for width in FLASH_WIDTHS if width >= max(head_dim, value_dim))
    yield Launch(
        f"flash_attn_{width}",
        (q, kv_k, kv_v, position, slot, page_table, Ref(node.outputs[0])),
        (
            group,
            kv_heads,
            head_dim,
            value_dim,
            float(node.attrs["scale"]),
            int(node.attrs.get("window", 0)),
            _page_tokens(node).bit_length() - 1,
            _last_dim(graph, node.inputs[5]),
        ),
        (group, row_shape(graph, node.inputs[0])[0], kv_heads),
    )


def _last_dim(graph: Graph, name: str) -> int:
    return int(graph.buffers[name].shape[-1])


def _page_tokens(node: Node) -> int:
    return int(node.attrs.get("page_tokens", PAGE_TOKENS))


def page_refusal(node: Node, graph: Graph) -> str | None:
    page_tokens = _page_tokens(node)
    if page_tokens & (page_tokens - 1):
        return f"page_tokens is {page_tokens}, wanted a power of two"
    return None


def flash_refusal(node: Node, graph: Graph) -> str | None:
    head_dim, value_dim = int(node.attrs["head_dim"]), int(node.attrs["value_dim"])
    if head_dim % 4 or value_dim % 4 or not 0 < max(head_dim, value_dim) <= FLASH_WIDTHS[-1]:
        return f"head_dim {head_dim}, value_dim {value_dim}: wanted multiples of 4 up to {FLASH_WIDTHS[-1]}"
    if _page_tokens(node) < BATCH_KEYS:
        return f"page_tokens is {_page_tokens(node)}, wanted {BATCH_KEYS} or more"
    return page_refusal(node, graph)


ROWS: tuple[Entry, ...] = (
    Entry(Op.ROPE, rope, ORDERINGS, WEIGHTS),
    Entry(Op.KV_WRITE_BATCHED, kv_write, ORDERINGS, WEIGHTS, rejects=page_refusal),
    Entry(Op.RMS_NORM_FUSED_ROPE_KV_WRITE, norm_rope_kv_write, ORDERINGS, WEIGHTS, rejects=page_refusal),
    Entry(Op.FLASH_ATTN, flash_attn, ORDERINGS, WEIGHTS, rejects=flash_refusal),
    Entry(Op.FLASH_ATTN_BATCHED, flash_attn, ORDERINGS, WEIGHTS, rejects=flash_refusal),
)
