"""Projections in wmma-f16 and wmma-bf16 (docs/wmma-f16.md) by sets with `matmul_wmma`, also of selected experts.

The pairs of tokens and experts are sorted by expert on the device (sort_experts.s), so that a tile of pairs shares
its expert's weights. Results are written where each pair's belong, and summed as in any other ordering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, WMMA_FORMS, WMMA_ORDERINGS
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Temp
from zinc_rt.kernels.rows.matvec import check_projection_weights, make_projection, make_vector_function
from zinc_rt.kernels.rows.projections import (
    WMMA_CODES,
    Choices,
    Launches,
    Part,
    ProjectionInput,
    ProjectionKernels,
)
from zinc_rt.kernels.rows.repack import PAIR, list_plane_constants, make_layout
from zinc_rt.kernels.rows.tuning import Tuning

EXPERT_PAIRS = 32  # of a tile: sort_experts, matmul_wmma_experts
SORT, EXPERTS = "sort_experts", "matmul_wmma_experts"  # kernels
SLOT_BYTES, PAIR_BYTES = 16, 4  # of routes: sort_experts.s
HALF_BYTES, FACTOR_BYTES = 2, 16  # of an element and at the end of a row: round_rows.s
X_MULTIPLE = 4  # elements that a work-item loads at once


def count_slots(pairs: int, experts: int) -> int:
    """Return the number of tiles that so many pairs need at most."""
    return pairs // EXPERT_PAIRS + experts


def list_tiles(numbers: np.ndarray, slots: int) -> np.ndarray:
    """Return the tiles that sort_experts writes for `numbers` [E] of pairs: i32 [slots, 4] of (expert, first pair,
    pairs, 0)."""
    tiles = np.zeros((slots, 4), np.int32)
    begin = 0
    for expert, number in enumerate(map(int, numbers)):
        first, later = (at // EXPERT_PAIRS + expert for at in (begin, begin + number))
        last = slots if expert == len(numbers) - 1 else later + 1
        done = EXPERT_PAIRS * np.arange(last - first)
        tiles[first:last, 0], tiles[first:last, 1] = expert, begin + done
        tiles[first:last, 2] = np.clip(number - done, 0, EXPERT_PAIRS)
        begin += number
    return tiles


def _project(
    tuning: Tuning,
    halves_type: str,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    parts: Sequence[Part],
) -> Launches:
    """Round the input's rows once, and sort its pairs if it has choices, then multiply tiles."""
    if source.exact:
        for part in parts:
            yield make_projection(tuning, graph, source, part)
        return
    assert source.tokens == "tokens" and source.row is None and source.heads is None and not source.x_stride
    choices, tokens = source.choices, capacity["tokens"]
    k = int(graph.buffers[parts[0].weight].shape[-1])
    padded = -(-k // PAIR) * PAIR
    own = choices.choices if choices and choices.own_inputs else 1
    record_bytes = HALF_BYTES * padded + FACTOR_BYTES
    x = source.x
    of = f"{x.name}+{x.offset_bytes}" if isinstance(x, Ref) and x.offset_bytes else x.name
    halves = Temp(f"{halves_type}:{of}", record_bytes * own * tokens)
    yield Launch(
        f"round_rows_{halves_type}",
        (x, halves),
        (k, padded, own, 0),
        (own, "tokens", 1),
        makes=None if isinstance(x, Temp) else halves,
    )
    routes = None
    if choices is not None:
        experts = int(graph.buffers[parts[0].weight].shape[0])
        routes, sort = _sort_experts(choices, experts, tokens)
        yield sort
    yield SYNC
    for part in parts:
        yield _multiply(tuning, halves_type, graph, tokens, part, halves, record_bytes, choices, routes)


def _sort_experts(choices: Choices, experts: int, tokens: int) -> tuple[Temp, Launch]:
    """Return the tiles and pairs of a step's experts, and the launch that makes them."""
    ids, pairs = choices.ids, tokens * choices.choices
    slots = count_slots(pairs, experts)
    routes = Temp(f"routes:{ids.name}", SLOT_BYTES * slots + PAIR_BYTES * pairs)
    constants = choices.choices, slots, experts
    makes = None if isinstance(ids, Temp) else routes
    return routes, Launch(SORT, (ids, routes, Ref(COUNTS)), constants, (experts, 1, 1), makes=makes)


def _multiply(
    tuning: Tuning,
    halves_type: str,
    graph: OpGraph,
    tokens: int,
    part: Part,
    halves: Temp,
    record_bytes: int,
    choices: Choices | None,
    routes: Temp | None,
) -> Launch:
    assert part.residual is None and part.score is None
    spec = graph.buffers[part.weight]
    *stacked, rows, k = (int(dim) for dim in spec.shape)
    dtype = tuning.stored_dtype(spec.dtype)
    first, *others = make_layout(dtype, rows * prod(stacked), k).planes
    constants = rows, k, first.row_bytes, *list_plane_constants(tuple(others)), record_bytes
    vectors = [Ref(name) if name else None for name in (part.scale, part.bias)]
    if choices is None or routes is None:
        buffers = halves, Ref(part.weight), part.out, *vectors, Ref(COUNTS)
        grid = -(-tokens // tuning.wmma_tokens), -(-rows // tuning.wmma_rows), 1
        return Launch(f"matmul_wmma_{halves_type}_{dtype}", buffers, constants, grid)
    slots = count_slots(tokens * choices.choices, stacked[0])
    pairs_to_a_row = 1 if choices.own_inputs else choices.choices
    return Launch(
        f"{EXPERTS}_{halves_type}_{dtype}",
        (halves, Ref(part.weight), part.out, routes, *vectors),
        (*constants, -(-(1 << 31) // pairs_to_a_row), SLOT_BYTES * slots),
        (slots, -(-rows // tuning.wmma_rows), 1),
    )


def _check_node(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    if "matmul_wmma" not in tuning.own_kernels:
        plain = node.op.name.partition("_WMMA")[0]
        return f"{node.op.name} sums in the matrix unit's order, not canonical-1: use {plain}"
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=False):
        if port.kind != "weight" or name == ABSENT or port.name in ("norm_w", "gate_inp"):
            continue
        spec = graph.buffers[name]
        if port.name.endswith(("bias", "scale")):
            if spec.dtype != "f32":
                return f"{name} is {spec.dtype}; biases and scales of {node.op.name} are f32"
        elif int(spec.shape[-1]) % X_MULTIPLE:
            return f"{node.op.name} needs rows of a multiple of {X_MULTIPLE} elements, not {int(spec.shape[-1])}"
    return check_projection_weights(tuning, node, graph)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    products = {
        ordering: ProjectionKernels(
            tuning,
            partial(_project, tuning, ordering.removeprefix("wmma-")),
            make_vector_function(tuning),
            adds_expert_biases=True,
        )
        for ordering in WMMA_FORMS
    }
    return tuple(
        Entry(
            op, partial(code, products[WMMA_ORDERINGS[op]]), tuning.orderings, rejects=partial(_check_node, tuning)
        )
        for op, code in WMMA_CODES.items()
    )
