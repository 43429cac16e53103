"""Projections: nodes to launches. matvec.inc and matmul.inc describe the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.entry import Entry, Rejects
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Operand, Ref, Sync, Temp
from zinc_rt.kernels.rows import matvec_parts
from zinc_rt.kernels.rows.dequantise import check_vector, make_dequantise_launch
from zinc_rt.kernels.rows.operands import Buffer
from zinc_rt.kernels.rows.projections import (
    CODES,
    Convolution,
    ExpertAddends,
    Launches,
    Part,
    ProjectionInput,
    ProjectionKernels,
    accept_no_gate,
    is_never_chosen,
    no_convolution,
    no_expert_sum,
    no_rotation,
    no_routed_glu,
    reject_glu,
)
from zinc_rt.kernels.rows.repack import GROUP, PLAIN_DTYPES, Q8_BLOCKS, list_plane_constants, make_layout
from zinc_rt.kernels.rows.tuning import Tuning
from zinc_rt.kernels.rows.vectors import convert_to_f32

_BIAS_SHIFT, _X_BY_CHOICE, _BIAS_BY_ROW, _GELU, _SCORED = 2, 1 << 4, 1 << 5, 1 << 6, 1 << 7
_CONVOLVED, _SILU = 1 << 8, 1 << 9
MATRIX_TOKENS, MATRIX_ROWS = 16, 64  # tokens per workgroup of matmul_q8_32
EXPERT_ROWS, EXPERT_CHOICES = 4, 128  # rows per workgroup of matvec_expert_sum; choices that its LDS holds
GATED_COLUMNS, GATED_SIZE = 6144, 128  # maximum row, which is in LDS, and group of matvec_gated


def make_projection(tuning: Tuning, graph: OpGraph, source: ProjectionInput, part: Part) -> Launch:
    """Compute one part of an input, token by token. The caller must have checked `check_weight` and
    `check_plain_weight`."""
    weight, choices, heads = _make_matrix(tuning, graph, part), source.choices, source.heads
    assert heads is None or (heads.x_stride, heads.y_stride) == (weight.k, weight.rows), (
        "the heads are not contiguous"
    )
    flags = weight.vector_types | (_X_BY_CHOICE if heads or (choices and choices.own_inputs) else 0)
    number = heads.heads if heads else choices.choices if choices else 1
    launch = Launch(
        f"matvec_{weight.dtype}",
        (source.x, *weight.buffers, choices.ids if choices else None, source.row),
        (*weight.constants, number, flags, 0),
        (source.tokens, -(-weight.rows // tuning.matvec_rows), number),
    )
    if (gate := source.gate) is not None:
        return replace(
            launch,
            kernel=launch.kernel.replace("matvec_", "matvec_gated_"),
            buffers=(*launch.buffers, gate.gate, Ref(gate.weight)),
            constants=(*launch.constants, gate.size, gate.eps),
        )
    return matvec_parts.fuse_norm(launch, Ref(source.norm.weight), source.norm.eps) if source.norm else launch


def make_glu(
    tuning: Tuning,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    gate: Part,
    up: Part,
    activation: str = "silu",
) -> tuple[Launch | Sync, ...] | None:
    """Compute activation(gate's projection) * (up's projection) into `up.out` in one launch, token by token; None
    if the weights differ in type or a step has enough tokens for tiles."""
    halves = [_make_matrix(tuning, graph, part) for part in (gate, up)]
    if halves[0].dtype != halves[1].dtype or halves[0].rows != halves[1].rows:
        return None
    if source.choices is None and capacity["tokens"] >= tuning.matmul_capacity:
        return None
    one = make_projection(tuning, graph, replace(source, norm=None), up)
    x, *_, ids, row = one.buffers
    number, flags = one.constants[-3:-1]
    norm, gelu = source.norm, _GELU * (activation == "gelu")
    buffers: list[Operand | None] = [x, ids, row]
    eps = norm.eps if norm else 0
    constants: list[int | float] = [halves[0].k, number, int(flags) & _X_BY_CHOICE, 0, 0, 0, eps, 0]
    for half, out, more in zip(halves, (None, up.out), (0, gelu), strict=True):
        weight, _, scale, bias = half.buffers
        buffers += weight, out, scale, bias
        constants += *half.constants[2:], half.vector_types | more, half.rows, 0
    family = "matvec_glu_norm" if norm else "matvec_glu"
    if norm:
        buffers.append(Ref(norm.weight))
    return (Launch(f"{family}_{halves[0].dtype}", tuple(buffers), tuple(constants), one.grid),)


def make_convolution(
    tuning: Tuning,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    part: Part,
    convolution: Convolution,
) -> Launch | None:
    """Compute one part of a norm and the convolution of it in one launch; None if there is no norm, or for steps
    of more than one token, which may be of one sequence."""
    if source.norm is None or capacity["tokens"] > 1:
        return None
    launch = make_projection(tuning, graph, replace(source, norm=None), part)
    x, weight, y, _, _, ids, row = launch.buffers
    *constants, flags, last = launch.constants
    flags = int(flags) | _CONVOLVED | _SILU * convolution.silu
    convolved = replace(
        launch,
        buffers=(x, weight, y, convolution.taps, convolution.state, ids, row),
        constants=(*constants, flags, last),
    )
    rows = convolution.source, convolution.target, convolution.bias
    return matvec_parts.fuse_norm(convolved, Ref(source.norm.weight), source.norm.eps, rows)


def rotate_projections(
    tuning: Tuning,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    projected: Sequence[Launch | Sync],
    rotated: Launch,
) -> Launch | None:
    """Compute projections of a norm, and `rotated` after them, in one launch; None if the projections are not one
    dispatch, or the caches are not f32."""
    launches = [item for item in projected if isinstance(item, Launch)]
    keys = {matvec_parts.launch_key(launch) for launch in launches}
    if source.norm is None or len(launches) < len(projected) or len(keys) > 1 or None in keys:
        return None
    if rotated.kernel != "norm_rope_kv":  # the one that matvec_rope has
        return None
    merged = matvec_parts.merge_launches(launches)
    _, workgroups, _ = merged.grid
    assert isinstance(workgroups, int)
    arrivals = Temp("arrivals", 4 * capacity["tokens"], zeroed=True)
    return Launch(
        merged.kernel.replace("matvec_norm_", "matvec_rope_"),
        (*merged.buffers[:-3], *rotated.buffers, arrivals),
        (*merged.constants, *rotated.constants, workgroups - 1),
        merged.grid,
    )


def make_routed_glu(
    tuning: Tuning,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    gate: Part,
    up: Part,
    activation: str,
    topk: Launch,
) -> Launch | None:
    """Compute `topk`, and `make_glu` of the experts that it selects, in one launch; None if there is no norm, or
    as for make_glu."""
    glu = make_glu(tuning, graph, capacity, source, gate, up, activation)
    if glu is None or source.norm is None or not _is_small_batch(tuning, capacity):
        return None
    (launch,) = glu
    assert isinstance(launch, Launch)
    x, _, _, *others = launch.buffers
    return replace(
        launch,
        kernel=launch.kernel.replace("matvec_glu_norm_", "matvec_glu_routed_"),
        buffers=(x, None, None, *others, *topk.buffers),
        constants=(*launch.constants, *topk.constants),
    )


def expert_sum(
    tuning: Tuning,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    down: Part,
    addends: ExpertAddends,
) -> Launch | None:
    """Compute the down projections of a token's experts and their weighted sum into `down.out` in one launch; None
    if the weight has more rows than a grid of four rows holds, or a step has enough tokens to fill the device
    otherwise."""
    assert source.choices is not None
    one = make_projection(tuning, graph, source, down)
    x, weight, out, scale, _, ids, _ = one.buffers
    rows, number = int(one.constants[0]), source.choices.choices
    if not _is_small_batch(tuning, capacity) or rows > EXPERT_ROWS * tuning.grid_rows or number > EXPERT_CHOICES:
        return None
    return Launch(
        f"matvec_expert_sum_{_make_matrix(tuning, graph, down).dtype}",
        (x, weight, out, scale, addends.hidden, ids, addends.residual, addends.weights),
        one.constants,
        (source.tokens, -(-rows // EXPERT_ROWS), 1),
    )


def make_tiled_projection(tuning: Tuning, graph: OpGraph, x: Buffer, part: Part, capacity: int) -> Launch:
    """Compute `make_projection` for all tokens of a step of at most `capacity`, four at a time,
    with the same bits."""
    weight = _make_matrix(tuning, graph, part)
    return Launch(
        f"matmul_{weight.dtype}",
        (x, *weight.buffers, Ref(COUNTS)),
        (*weight.constants, weight.vector_types),
        (-(-capacity // tuning.matmul_tokens), -(-weight.rows // tuning.matmul_rows), 1),
    )


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The arguments for a part that both kernels share. `buffers`: weight, result, scale, bias; `constants`: rows,
    k, planes; `vector_types`: the types of scale and bias, as a part of the flags."""

    dtype: str
    rows: int
    k: int
    buffers: tuple[Buffer | None, ...]
    constants: tuple[int, ...]
    vector_types: int


def _make_matrix(tuning: Tuning, graph: OpGraph, part: Part) -> _Matrix:
    spec, bias, scale = graph.buffers[part.weight], part.bias, part.scale
    shape = tuple(int(dim) for dim in spec.shape)
    rows, k = shape[-2] if len(shape) > 1 else 1, shape[-1]
    dtype = tuning.stored_dtype(spec.dtype)
    first, *others = make_layout(dtype, prod(shape[:-1]), k).planes
    types = [
        PLAIN_DTYPES.index(tuning.stored_dtype(graph.buffers[name].dtype)) if name else 0 for name in (scale, bias)
    ]
    assert not (bias and part.residual), "a residual replaces the bias"
    assert not (scale and part.score), "a score replaces the scale"
    return _Matrix(
        dtype,
        rows,
        k,
        (Ref(part.weight), part.out, Ref(scale) if scale else part.score, Ref(bias) if bias else part.residual),
        (rows, k, first.row_bytes, *list_plane_constants(tuple(others))),
        types[0] | types[1] << _BIAS_SHIFT | _BIAS_BY_ROW * bool(part.residual) | _SCORED * bool(part.score),
    )


def check_weight(tuning: Tuning, graph: OpGraph, name: str) -> str | None:
    """Return why no projection by weight `name` is possible."""
    spec = graph.buffers[name]
    dtype = tuning.stored_dtype(spec.dtype)
    if dtype not in tuning.weight_dtypes:
        return (
            f"{name} is {spec.dtype}; projections support {', '.join((*tuning.weight_dtypes, *tuning.expansions))}"
        )
    shape = tuple(int(dim) for dim in spec.shape)
    location = make_layout(dtype, prod(shape[:-1]), shape[-1])
    if location.planes[-1].offset_bytes >= 1 << 32:
        return f"{name} has {location.size_bytes} bytes; a plane must start below 4 GiB"
    rows_maximum = tuning.grid_rows * min(tuning.matvec_rows, tuning.matmul_rows)
    if len(shape) > 1 and shape[-2] > rows_maximum:
        return f"{name} has {shape[-2]} rows, more than the {rows_maximum} that a grid holds"
    return None


def check_plain_weight(tuning: Tuning, graph: OpGraph, name: str) -> str | None:
    """Return why bias or scale `name` cannot be read. ABSENT is accepted."""
    if name == ABSENT or tuning.stored_dtype(graph.buffers[name].dtype) in PLAIN_DTYPES:
        return None
    return f"{name} is {graph.buffers[name].dtype}; biases and scales are {', '.join(PLAIN_DTYPES)}"


def _project(
    tuning: Tuning, graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, parts: Sequence[Part]
) -> Launches:
    """Compute in canonical-1: each part by the suitable kernel, in tiles of tokens if a step may have many."""
    tokens = capacity["tokens"]
    token_by_token = source.exact or any(item is not None for item in (source.choices, source.row, source.heads))
    for part in parts:
        if token_by_token or tokens < tuning.matmul_capacity:
            yield make_projection(tuning, graph, source, part)
        else:
            yield make_tiled_projection(tuning, graph, source.x, part, tokens)


def _project_q8(
    tuning: Tuning, graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, parts: Sequence[Part]
) -> Launches:
    """Compute in canonical-1-q8: quantise the input to 8 bits once per block size, then use integer dots. Parts of
    other types use canonical-1."""
    blocks = {
        part: Q8_BLOCKS.get(tuning.stored_dtype(graph.buffers[part.weight].dtype), 0) * (not source.exact)
        for part in parts
    }
    records: dict[int, Temp] = {}
    for part, block in blocks.items():
        if block and block not in records:
            k = int(graph.buffers[part.weight].shape[-1])
            records[block], launch = _quantise_launches(source, block, k, capacity)
            yield launch
    if records:
        yield SYNC
    for part, block in blocks.items():
        if not block:
            yield from _project(tuning, graph, capacity, source, (part,))
            continue
        if _is_for_matrix_unit(tuning, graph, capacity, source, part, block):
            yield _make_matrix_product(tuning, graph, records[block], part, capacity["tokens"])
            continue
        launch = make_projection(tuning, graph, replace(source, norm=None), part)
        _, *others, _ = launch.buffers  # records replace x, in the order of `row`
        dtype = tuning.stored_dtype(graph.buffers[part.weight].dtype)
        yield replace(launch, kernel=f"matvec_q8_{block}_{dtype}", buffers=(records[block], *others, None))


def _is_for_matrix_unit(
    tuning: Tuning, graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, part: Part, block: int
) -> bool:
    """Return whether a part uses matmul_q8_32: many tokens, a row for each, and whole groups of k."""
    if "matmul_q8_32" not in tuning.own_kernels or block != 32 or capacity["tokens"] < MATRIX_TOKENS:
        return False
    apart = part.residual, source.choices, source.row, source.heads
    if part.scale or part.bias or any(item is not None for item in apart):
        return False
    return source.tokens == "tokens" and int(graph.buffers[part.weight].shape[-1]) % GROUP == 0


def _make_matrix_product(tuning: Tuning, graph: OpGraph, records: Temp, part: Part, capacity: int) -> Launch:
    """Compute `make_projection` from the records of all tokens of a step of at most `capacity` on the matrix
    unit, with the same bits."""
    weight = _make_matrix(tuning, graph, part)
    packed, out, _, _ = weight.buffers
    grid = -(-capacity // MATRIX_TOKENS), -(-weight.rows // MATRIX_ROWS), 1
    constants = (*weight.constants[:-2], 0)
    return Launch(f"matmul_q8_32_{weight.dtype}", (records, packed, out, Ref(COUNTS)), constants, grid)


def _glu_q8(
    tuning: Tuning,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    gate: Part,
    up: Part,
    activation: str = "silu",
) -> tuple[Launch | Sync, ...] | None:
    """Compute `make_glu` in canonical-1-q8."""
    block = Q8_BLOCKS.get(tuning.stored_dtype(graph.buffers[up.weight].dtype), 0)
    one = make_glu(tuning, graph, capacity, replace(source, norm=None) if block else source, gate, up, activation)
    if one is None or not block:
        return one
    (launch,) = one
    assert isinstance(launch, Launch)
    record, quantised = _quantise_launches(source, block, int(graph.buffers[up.weight].shape[-1]), capacity)
    kernel = launch.kernel.replace("matvec_glu_", f"matvec_glu_q8_{block}_")
    _, ids, _, *others = launch.buffers
    return quantised, SYNC, replace(launch, kernel=kernel, buffers=(record, ids, None, *others))


def _quantise_launches(
    source: ProjectionInput, block: int, k: int, capacity: Mapping[str, int]
) -> tuple[Temp, Launch]:
    """Return the records of an input or of its norm, and the launch that creates them. q8.inc and activations.glsl
    describe them."""
    tokens = capacity[source.tokens] if isinstance(source.tokens, str) else source.tokens
    groups = -(-k // GROUP)
    inputs = 1
    if source.heads:
        inputs = source.heads.heads
    elif source.choices and source.choices.own_inputs:
        inputs = source.choices.choices
    x, row = source.x, source.row
    of = f"{x.name}+{x.offset_bytes}" if isinstance(x, Ref) and x.offset_bytes else x.name
    record_bytes = groups * (GROUP + 4 * GROUP // block + 4 * GROUP // 32)
    norm = source.norm
    normed = f" by {norm.weight}" if norm else ""
    temp = Temp(f"q8_{block}:{of}{f'[{row.name}]' if row else ''}{normed}", record_bytes * tokens * inputs)
    of_graph = all(not isinstance(item, Temp) for item in (x, row))
    return temp, Launch(
        f"quantise_norm_{block}" if norm else f"quantise_{block}",
        (x, temp, row, *((Ref(norm.weight),) if norm else ())),
        (k, inputs, *((norm.eps, 0) if norm else ())),
        (source.tokens, groups, inputs),
        makes=temp if of_graph else None,
    )


_PROJECT = {"canonical-1": _project, "canonical-1-q8": _project_q8}


def check_projection_weights(tuning: Tuning, node: Node, graph: OpGraph, *others: str) -> str | None:
    """Return why a weight cannot be read: matrices need a type with a kernel, biases and scales must be plain.
    Ports in `others` are ignored.
    """
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=True):
        if port.kind != "weight" or name == ABSENT or port.name in others:
            continue
        if port.name == "norm_w":
            reason = check_vector(tuning, graph, name)
        elif port.name.endswith("bias") and len(port.shape) > 1:
            dtype = graph.buffers[name].dtype
            reason = None if dtype == "f32" else f"{name} is {dtype}; biases of experts are f32"
        elif len(port.shape) > 1 or port.name == "gate_inp":
            reason = check_weight(tuning, graph, name)
        else:
            reason = check_plain_weight(tuning, graph, name)
        if reason:
            return reason
    return None


def make_projection_entries(
    tuning: Tuning, codes: Mapping[Op, Callable[..., Launches]], rejects: Rejects
) -> tuple[Entry, ...]:
    """Return the rows of projection opcodes: an entry for each opcode and ordering. `codes`: (ProjectionKernels,
    node, graph, capacity) -> launches."""
    norms = make_vector_function(tuning)
    return tuple(
        Entry(
            op,
            partial(code, kernels),
            frozenset({ordering}),
            rejects=rejects,
        )
        for ordering in sorted(tuning.orderings)
        for fuses in ("matvec_norm" in tuning.own_kernels,)
        for kernels in (
            ProjectionKernels(
                tuning,
                partial(_PROJECT[ordering], tuning),
                norms,
                _make_glu_function(tuning, ordering),
                _expert_sum(tuning, ordering),
                partial(_is_small_batch, tuning) if fuses else is_never_chosen,
                scored=ordering == "canonical-1" and fuses,
                rotate=partial(rotate_projections, tuning) if ordering == "canonical-1" and fuses else no_rotation,
                convolve=partial(make_convolution, tuning)
                if ordering == "canonical-1" and fuses
                else no_convolution,
                routed_glu=_routed_glu(tuning, ordering),
                gates=partial(_is_gated, tuning) if ordering == "canonical-1" else accept_no_gate,
            ),
        )
        for op, code in codes.items()
    )


def _is_small_batch(tuning: Tuning, capacity: Mapping[str, int]) -> bool:
    """Return whether a step is projected token by token."""
    return capacity["tokens"] < tuning.matmul_capacity


def _is_gated(tuning: Tuning, capacity: Mapping[str, int], k: int, size: int) -> bool:
    """Return whether matvec_gated computes the gated norm of `k` elements in groups of `size` itself."""
    fits = k <= GATED_COLUMNS and size <= GATED_SIZE and size % 4 == 0
    return "matvec_gated" in tuning.own_kernels and fits and _is_small_batch(tuning, capacity)


_GLU = {"canonical-1": make_glu, "canonical-1-q8": _glu_q8}


def _make_glu_function(tuning: Tuning, ordering: str) -> Callable[..., tuple[Launch | Sync, ...] | None]:
    return partial(_GLU[ordering], tuning) if "matvec_glu" in tuning.own_kernels else reject_glu


def _expert_sum(tuning: Tuning, ordering: str) -> Callable[..., Launch | None]:
    is_built = ordering == "canonical-1" and "matvec_expert_sum" in tuning.own_kernels
    return partial(expert_sum, tuning) if is_built else no_expert_sum


def _routed_glu(tuning: Tuning, ordering: str) -> Callable[..., Launch | None]:
    is_built = ordering == "canonical-1" and "matvec_glu_routed" in tuning.own_kernels
    return partial(make_routed_glu, tuning) if is_built else no_routed_glu


def make_vector_function(tuning: Tuning) -> Callable[[Node, OpGraph, Iterable[Launch | Sync]], Launches]:
    """Return ProjectionKernels' `vectors` of a set."""
    return partial(_convert_to_f32, tuning) if tuning.any_vectors else _pass_through


def _convert_to_f32(tuning: Tuning, node: Node, graph: OpGraph, launches: Iterable[Launch | Sync]) -> Launches:
    return convert_to_f32(partial(make_dequantise_launch, tuning), graph, launches)


def _pass_through(node: Node, graph: OpGraph, launches: Iterable[Launch | Sync]) -> Launches:
    yield from launches


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return make_projection_entries(tuning, CODES, partial(check_projection_weights, tuning))
