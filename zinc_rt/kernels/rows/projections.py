"""Nodes that consist of projections, for any kernel set: their computations, order and temporaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import WMMA_FORMS, Op
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.elementwise import ACTIVATIONS, make_rowwise_launch
from zinc_rt.kernels.rows.norm import make_norm_launch
from zinc_rt.kernels.rows.operands import Buffer, Count, find_last_dim
from zinc_rt.kernels.rows.tuning import Tuning

F32_BYTES = 4
GATINGS = ("sigmoid", "softmax", "softmax_selected")  # by their numbers in the kernels
_NOWHERE = Ref("")  # until its target is known
Launches = Iterator[Launch | Sync]


@dataclass(frozen=True, slots=True)
class Part:
    """One projection of an input. `bias` (rows, or experts x rows) and `scale` (1 or experts) by name; None or
    ABSENT: none.
    `residual` f32, shaped as out: added to the result. `score` f32 [tokens]: the result is first multiplied by its
    sigmoid. Only kernel sets with `scored` have it."""

    weight: str
    out: Buffer
    bias: str | None = None
    scale: str | None = None
    residual: Buffer | None = None
    score: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """The experts of each token: i32 [tokens][choices]. `own_inputs`: x is f32 [tokens][choices][k], one for each
    choice."""

    ids: Buffer
    choices: int
    own_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """The layout of heads. Head h reads k floats at h * x_stride of a token's input, and writes its rows at h *
    y_stride."""

    heads: int
    x_stride: int
    y_stride: int


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm of whole rows, by the name of its weight."""

    weight: str
    eps: float


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of an input: each group of `size` elements of x is replaced by its RMS norm with `weight`, times
    silu of the gate's elements, f32 [tokens][k]."""

    gate: Buffer
    weight: str
    size: int
    eps: float


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over time of a projection's result, for a step of one token: `taps` f32 (rows, 4), `state` f32
    [slots][3][rows], of which row source[0] is read and row target[0] written, `bias` f32 (rows)."""

    taps: Buffer
    state: Buffer
    source: Buffer
    target: Buffer
    bias: Buffer | None
    silu: bool


@dataclass(frozen=True, slots=True)
class ProjectionInput:
    """The input of projections: x f32 [tokens][k]."""

    x: Buffer
    tokens: Count = "tokens"
    row: Buffer | None = None
    choices: Choices | None = None
    heads: Heads | None = None
    x_stride: int = 0
    exact: bool = False
    norm: Norm | None = None
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class ExpertAddends:
    """The operands of the sum over a token's experts: `weights` f32 [tokens][choices], and what is added to it
    before and after, f32 [tokens][rows]."""

    weights: Buffer
    hidden: Buffer | None
    residual: Buffer | None


def reject_glu(
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    gate: Part,
    up: Part,
    activation: str = "silu",
) -> tuple[Launch | Sync, ...] | None:
    return None


def no_expert_sum(
    graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, down: Part, addends: ExpertAddends
) -> Launch | None:
    return None


def no_routed_glu(
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    gate: Part,
    up: Part,
    activation: str,
    topk: Launch,
) -> Launch | None:
    return None


def no_convolution(
    graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, part: Part, convolution: Convolution
) -> Launch | None:
    return None


def no_rotation(
    capacity: Mapping[str, int], source: ProjectionInput, projected: Sequence[Launch | Sync], rotated: Launch
) -> Launch | None:
    return None


def is_never_chosen(capacity: Mapping[str, int]) -> bool:
    return False


def accept_no_gate(capacity: Mapping[str, int], k: int, size: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ProjectionKernels:
    """The interface that a kernel set implements for projections."""

    tuning: Tuning
    project: Callable[[OpGraph, Mapping[str, int], ProjectionInput, Sequence[Part]], Launches]
    vectors: Callable[[Node, OpGraph, Iterable[Launch | Sync]], Iterable[Launch | Sync]]
    glu: Callable[..., tuple[Launch | Sync, ...] | None] = reject_glu
    expert_sum: Callable[..., Launch | None] = no_expert_sum
    fuses: Callable[[Mapping[str, int]], bool] = is_never_chosen
    scored: bool = False
    adds_expert_biases: bool = False  # in `project`
    routed_glu: Callable[..., Launch | None] = no_routed_glu
    convolve: Callable[..., Launch | None] = no_convolution
    rotate: Callable[..., Launch | None] = no_rotation
    gates: Callable[[Mapping[str, int], int, int], bool] = accept_no_gate  # of k elements in groups of a size


def _matmul(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    _, w, *options = node.inputs
    bias, scale, _, residual, _ = (*options, *[ABSENT] * 5)[:5]
    out = Ref(node.outputs[0])
    before, source = _matmul_input(kernels, node, graph, capacity)
    yield from before
    if residual == ABSENT:
        yield from kernels.project(graph, capacity, source, [Part(w, out, bias, scale)])
    elif kernels.fuses(capacity) and not bias:
        part = Part(w, out, scale=scale, residual=Ref(residual))
        yield from kernels.project(graph, capacity, source, [part])
    else:
        rows = find_last_dim(graph, out.name)
        product = Temp("product", F32_BYTES * capacity["tokens"] * rows)
        yield from kernels.project(graph, capacity, source, [Part(w, product, bias, scale)])
        yield SYNC
        yield make_rowwise_launch(kernels.tuning, "add", (Ref(residual), product, out), "tokens", rows)


def _matmul_input(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> tuple[Iterable[Launch | Sync], ProjectionInput]:
    """Return the input of a MATMUL, normed and gated, with the launches that compute it: none if the projection
    kernels do."""
    x, _, *options = node.inputs
    _, _, norm_w, _, gate = (*options, *[ABSENT] * 5)[:5]
    groups, k = int(node.attrs.get("norm_groups", 1)), find_last_dim(graph, x)
    if gate == ABSENT and (norm_w == ABSENT or groups == 1):
        return _norm_launches(kernels, node, graph, capacity, norm_w)
    eps, size = float(node.attrs.get("eps", 1e-6)), k // groups
    if gate and norm_w and graph.buffers[norm_w].dtype == "f32" and kernels.gates(capacity, k, size):
        return (), ProjectionInput(Ref(x), gate=Gate(Ref(gate), norm_w, size, eps))
    source: Buffer = Ref(x)
    launches: list[Launch | Sync] = []
    if norm_w:
        source, normed = Temp("normed", F32_BYTES * capacity["tokens"] * k), source
        launches += (
            make_norm_launch(normed, Ref(norm_w), source, rows="tokens", columns=k, size=size, eps=eps),
            SYNC,
        )
    if gate:
        source, ungated = Temp("gated", F32_BYTES * capacity["tokens"] * k), source
        buffers = Ref(gate), ungated, source
        launches += make_rowwise_launch(kernels.tuning, "swiglu", buffers, "tokens", k), SYNC
    return kernels.vectors(node, graph, launches), ProjectionInput(source)


def _lm_head(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, w, row, bias = node.inputs
    source = ProjectionInput(Ref(x), tokens="rows", row=Ref(row))
    yield from kernels.project(graph, capacity, source, [Part(w, Ref(node.outputs[0]), bias)])


def project_norm(
    kernels: ProjectionKernels,
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    weight: str,
    parts: Sequence[Part],
) -> Launches:
    """Return projections of a node's first operand, or of its norm by `weight`."""
    before, source = _norm_launches(kernels, node, graph, capacity, weight)
    yield from before
    yield from kernels.project(graph, capacity, source, parts)


def route(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int], topk: Launch
) -> Launches:
    """Return the launches of a MOE_GATE_TOPK: logits, then `topk`, then the projections of the selected experts,
    if the node has them."""
    _, gate_w, _, norm_w, expert_gate_w, expert_up_w, gate_scale, up_scale, bias = node.inputs
    logits, ids, _, *act = (Ref(name) for name in node.outputs)
    before, source = _norm_launches(kernels, node, graph, capacity, norm_w)
    yield from before
    yield from kernels.project(graph, capacity, source, [Part(gate_w, logits, bias)])
    yield SYNC
    if not act or not expert_gate_w:
        yield topk
        return
    source = replace(source, choices=Choices(ids, find_last_dim(graph, ids.name)))
    gate, up = Part(expert_gate_w, _NOWHERE, scale=gate_scale), Part(expert_up_w, act[0], scale=up_scale)
    activation = str(node.attrs.get("activation", "silu"))
    launch = kernels.routed_glu(graph, capacity, source, gate, up, activation, topk)
    if launch is not None:
        yield launch
        return
    yield topk
    yield SYNC
    yield from _gate_up(kernels, graph, capacity, source, gate, up, activation, act)


def _norm_launches(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int], weight: str
) -> tuple[Iterable[Launch | Sync], ProjectionInput]:
    """Return a node's first operand, or its norm by `weight`, as the input of projections, with the launches that
    compute it: none if the projection kernels compute the norm."""
    x = node.inputs[0]
    if weight == ABSENT:
        return (), ProjectionInput(Ref(x))
    eps, k = float(node.attrs.get("eps", 1e-6)), find_last_dim(graph, x)
    if kernels.fuses(capacity) and graph.buffers[weight].dtype == "f32":
        return (), ProjectionInput(Ref(x), norm=Norm(weight, eps))
    normed = Temp("normed", F32_BYTES * capacity["tokens"] * k)
    launch = make_norm_launch(Ref(x), Ref(weight), normed, rows="tokens", columns=k, size=k, eps=eps)
    return kernels.vectors(node, graph, (launch, SYNC)), ProjectionInput(normed)


def make_convolution_code(
    convolve: Callable[..., Launches],
) -> Callable[[ProjectionKernels, Node, OpGraph, Mapping[str, int]], Launches]:
    """Return the code of MATMUL_FUSED_CONV1D_IDS. `convolve(node, graph, capacity, x)`: the launches of an
    SSM_CONV1D_UPDATE_IDS of x."""

    def project_convolved(
        kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
    ) -> Launches:
        _, w, taps, state, sequence, source, target, bias, norm_w = node.inputs
        before, projected = _norm_launches(kernels, node, graph, capacity, norm_w)
        convolution = Convolution(
            Ref(taps),
            Ref(state),
            Ref(source),
            Ref(target),
            Ref(bias) if bias else None,
            bool(node.attrs.get("silu", True)),
        )
        if find_last_dim(graph, taps) == kernels.tuning.conv_taps:
            part = Part(w, Ref(node.outputs[0]))
            launch = kernels.convolve(graph, capacity, projected, part, convolution)
            if launch is not None:
                yield launch
                return
        mixed = Temp("mixed", F32_BYTES * capacity["tokens"] * find_last_dim(graph, node.outputs[0]))
        yield from before
        yield from kernels.project(graph, capacity, projected, [Part(w, mixed)])
        yield SYNC
        conv = replace(node, op=Op.SSM_CONV1D_UPDATE_IDS, inputs=("", taps, state, sequence, source, target, bias))
        yield from convolve(conv, graph, capacity, mixed)

    return project_convolved


def make_rotation_code(
    rotate: Callable[..., Launches],
) -> Callable[[ProjectionKernels, Node, OpGraph, Mapping[str, int]], Launches]:
    """Return the code of QKV_FUSED_ROPE_KV_WRITE. `rotate(node, graph, capacity, qkv)`: the launches of an
    RMS_NORM_FUSED_ROPE_KV_WRITE of q, k and v."""

    def project_rotated(
        kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
    ) -> Launches:
        norm_w, *weights = node.inputs[1:5]
        k, v = (
            Temp(name, F32_BYTES * capacity["tokens"] * int(graph.buffers[weight].shape[0]))
            for name, weight in zip(("k", "v"), weights[1:], strict=True)
        )
        qkv: tuple[Buffer, ...] = Ref(node.outputs[0]), k, v
        before, source = _norm_launches(kernels, node, graph, capacity, norm_w)
        parts = [Part(weight, out) for weight, out in zip(weights, qkv, strict=True)]
        projected = list(kernels.project(graph, capacity, source, parts))
        attrs = {name: value for name, value in node.attrs.items() if name != "head_eps"}
        rope = replace(
            node,
            op=Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            inputs=("", "", "", *node.inputs[5:]),
            outputs=node.outputs[1:],
            attrs={**attrs, "eps": node.attrs.get("head_eps", 1e-6)},
        )
        rotated = list(rotate(rope, graph, capacity, qkv))
        if len(rotated) == 1 and isinstance(rotated[0], Launch):
            launch = kernels.rotate(capacity, source, projected, rotated[0])
            if launch is not None:
                yield launch
                return
        yield from before
        yield from projected
        yield SYNC
        yield from rotated

    return project_rotated


def _fused_qkv(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    weights = zip(node.inputs[2:5], node.outputs, node.inputs[5:8], strict=True)
    parts = [Part(w, Ref(out), bias) for w, out, bias in weights]
    yield from project_norm(kernels, node, graph, capacity, node.inputs[1], parts)


def _fused_gate_up(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    _, norm_w, gate_w, up_w = node.inputs
    before, source = _norm_launches(kernels, node, graph, capacity, norm_w)
    yield from before
    activation, outputs = str(node.attrs.get("activation", "none")), [Ref(name) for name in node.outputs]
    gate, up = Part(gate_w, _NOWHERE), Part(up_w, _NOWHERE)
    yield from _gate_up(kernels, graph, capacity, source, gate, up, activation, outputs)


def _gate_up(
    kernels: ProjectionKernels,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    gate: Part,
    up: Part,
    activation: str,
    outputs: Sequence[Ref],
) -> Launches:
    """Compute both projections into two outputs, or activation(gate) * up into the only one."""
    out, *others = outputs
    if activation == "none":
        yield from _project_experts(
            kernels, graph, capacity, source, [replace(gate, out=out), replace(up, out=others[0])]
        )
        return
    is_plain = activation in ("silu", "gelu") and not gate.bias and not up.bias
    glu = kernels.glu(graph, capacity, source, gate, replace(up, out=out), activation) if is_plain else None
    if glu is not None:
        yield from glu
        return
    rows = int(graph.buffers[up.weight].shape[-2]) * (source.choices.choices if source.choices else 1)
    halves = [Temp(name, F32_BYTES * capacity["tokens"] * rows) for name in ("gate", "up")]
    parts = [replace(part, out=half) for part, half in zip((gate, up), halves, strict=True)]
    yield from _project_experts(kernels, graph, capacity, source, parts)
    yield SYNC
    yield make_rowwise_launch(kernels.tuning, ACTIVATIONS[activation], (*halves, out), "tokens", rows)


def _project_experts(
    kernels: ProjectionKernels,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    parts: Sequence[Part],
) -> Launches:
    """Compute projections, with the experts' biases after them where the projection kernels do not add these."""
    biases = [] if kernels.adds_expert_biases or source.choices is None else [part for part in parts if part.bias]
    plain = [replace(part, bias=None) if part in biases else part for part in parts]
    yield from kernels.project(graph, capacity, source, plain)
    for part in biases:
        assert source.choices is not None and part.bias
        rows, choices = find_last_dim(graph, part.bias), source.choices.choices
        yield SYNC
        yield Launch(  # out f32 [tokens][choices][rows] + bias f32 (experts, rows) of the expert
            "expert_bias",
            (part.out, Ref(part.bias), source.choices.ids),
            (rows, choices),
            (-(-rows // kernels.tuning.columns), "tokens", choices),
        )


def _moe_gate_up(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    _, gate_w, up_w, ids, gate_scale, up_scale, norm_w, gate_bias, up_bias = node.inputs
    parts = (
        Part(gate_w, _NOWHERE, bias=gate_bias, scale=gate_scale),
        Part(up_w, _NOWHERE, bias=up_bias, scale=up_scale),
    )
    before, source = _norm_launches(kernels, node, graph, capacity, norm_w)
    yield from before
    source = replace(source, choices=Choices(Ref(ids), find_last_dim(graph, ids)))
    activation, outputs = str(node.attrs.get("activation", "none")), [Ref(name) for name in node.outputs]
    yield from _gate_up(kernels, graph, capacity, source, *parts, activation, outputs)


def _moe_down_acc(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, down_w, ids, weights, expert_scale, hidden, residual, bias = node.inputs
    choices, width = find_last_dim(graph, ids), int(graph.buffers[down_w].shape[1])
    addends = ExpertAddends(Ref(weights), Ref(hidden) if hidden else None, Ref(residual) if residual else None)
    down = Temp("down", F32_BYTES * capacity["tokens"] * choices * width)
    source = ProjectionInput(Ref(x), choices=Choices(Ref(ids), choices, own_inputs=True))
    part = Part(down_w, Ref(node.outputs[0]), bias=bias, scale=expert_scale)
    launch = None if bias else kernels.expert_sum(graph, capacity, source, part, addends)
    if launch is not None:
        yield launch
        return
    yield from _project_experts(kernels, graph, capacity, source, [replace(part, out=down)])
    yield SYNC
    in_one = addends.residual is not None and "matvec_norm" in kernels.tuning.own_kernels
    out = Ref(node.outputs[0])
    total = Temp("total", F32_BYTES * capacity["tokens"] * width) if residual and not in_one else out
    added = (addends.residual,) if in_one else ()
    yield Launch(  # hidden + the sum of down f32 [tokens][choices][width] by weights f32 [tokens][choices]
        "expert_sum_residual" if in_one else "expert_sum",
        (down, addends.weights, addends.hidden, total, *added),
        (width, choices),
        (-(-width // kernels.tuning.expert_columns), "tokens", 1),
    )
    if isinstance(total, Temp):
        yield SYNC
        yield make_rowwise_launch(kernels.tuning, "add", (total, Ref(residual), out), "tokens", width)


def _shared_expert(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    x, gate_w, up_w, down_w, gate_inp, hidden, gate_scale, up_scale, down_scale, norm_w = node.inputs
    tokens, tuning = capacity["tokens"], kernels.tuning
    inner, width = (int(graph.buffers[w].shape[0]) for w in (gate_w, down_w))
    gate, up, act = (Temp(name, F32_BYTES * tokens * inner) for name in ("gate", "up", "act"))
    out, score = Ref(node.outputs[0]), Temp("score", F32_BYTES * tokens)
    down = Temp("down", F32_BYTES * tokens * width) if gate_inp or hidden else out
    scored = bool(gate_inp) and not down_scale and kernels.scored and kernels.fuses(capacity)
    with_dot = (
        bool(gate_inp)
        and not scored
        and not norm_w
        and "expert_gate_dot" in tuning.own_kernels
        and tuning.stored_dtype(graph.buffers[gate_inp].dtype) == "f32"
    )
    before, source = _norm_launches(kernels, node, graph, capacity, norm_w)
    yield from before
    parts = Part(gate_w, gate, scale=gate_scale), Part(up_w, up, scale=up_scale)
    glu = kernels.glu(graph, capacity, source, parts[0], replace(parts[1], out=act))
    if glu is not None:
        yield from glu
    else:
        yield from kernels.project(graph, capacity, source, parts)
    if gate_inp and not with_dot:
        yield from kernels.project(graph, capacity, replace(source, exact=True), [Part(gate_inp, score)])
    yield SYNC
    if glu is None:
        yield make_rowwise_launch(tuning, "swiglu", (gate, up, act), "tokens", inner)
        yield SYNC
    if scored:  # hidden + down * sigmoid(score)
        part = Part(down_w, out, residual=Ref(hidden) if hidden else None, score=score)
        yield from kernels.project(graph, capacity, ProjectionInput(act), [part])
        return
    yield from kernels.project(graph, capacity, ProjectionInput(act), [Part(down_w, down, scale=down_scale)])
    if not isinstance(down, Temp):
        return
    yield SYNC
    grid = (-(-width // tuning.expert_columns), "tokens", 1)
    residual = Ref(hidden) if hidden else None
    if with_dot:  # hidden + down * sigmoid(dot(x, gate_inp))
        k = find_last_dim(graph, x)
        yield Launch("expert_gate_dot", (down, Ref(x), Ref(gate_inp), residual, out), (width, k), grid)
    else:  # hidden + down * sigmoid(score), score f32 [tokens]; each is optional
        yield Launch("expert_gate", (down, score if gate_inp else None, residual, out), (width,), grid)


CODES: dict[Op, Callable[[ProjectionKernels, Node, OpGraph, Mapping[str, int]], Launches]] = {
    Op.MATMUL: _matmul,
    Op.LM_HEAD: _lm_head,
    Op.RMS_NORM_FUSED_QKV: _fused_qkv,
    Op.RMS_NORM_FUSED_MLP_GATE_UP: _fused_gate_up,
    Op.MOE_GATE_UP: _moe_gate_up,
    Op.MOE_DOWN_ACC: _moe_down_acc,
    Op.SHARED_EXPERT: _shared_expert,
}
WMMA_CODES = {  # of the opcodes whose projections are those of matrix cores
    Op.MATMUL_WMMA_Q4K: _matmul,
    **{form: CODES[op] for forms in WMMA_FORMS.values() for op, form in forms.items()},
}
