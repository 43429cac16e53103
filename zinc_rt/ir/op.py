"""The opcodes: the permitted operands and attributes of each node, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

MAX_BINDINGS = 16


class Op(IntEnum):
    EMBED = 0
    RMS_NORM = 1
    RMS_NORM_FUSED_QKV = 2
    RMS_NORM_FUSED_MLP_GATE_UP = 3
    ROPE = 4
    RMS_NORM_FUSED_ROPE_KV_WRITE = 5
    FLASH_ATTN = 6
    FLASH_ATTN_BATCHED = 7
    MOE_GATE_TOPK = 8
    MOE_GATE_UP = 9
    MOE_SWIGLU = 10
    MOE_DOWN_ACC = 11
    SHARED_EXPERT = 12
    SSM_CONV1D = 13
    SSM_DELTA_NET = 14
    SSM_GATED_NORM = 15
    RESIDUAL_RMS_NORM = 16
    LM_HEAD = 17
    ARGMAX = 18
    SAMPLE = 19
    KV_WRITE_BATCHED = 20
    MATMUL_WMMA_F16 = 21
    MATMUL_WMMA_Q4K = 22
    BARRIER = 23
    STREAM_OUT = 24
    LOAD_REQUEST_STATE = 25
    STORE_REQUEST_STATE = 26
    VERIFY_K = 27
    # Beyond Appendix B
    MATMUL = 28
    SWIGLU = 29
    GEGLU = 30
    SIGMOID_MUL = 31
    ADD = 32
    SCALE = 33
    ROW_SCALE = 34
    SLICE = 35
    SOFTCAP = 36
    MLA_ABSORB = 37
    MLA_EXPAND = 38
    MLA_FLASH_ATTN = 39
    SSM_SCAN = 40
    SSM_CONV1D_UPDATE = 41
    SSM_CONV1D_UPDATE_IDS = 42
    SSM_DELTA_NET_INPLACE = 43
    SSM_DELTA_NET_INPLACE_IDS = 44
    LOGITS_ADJUST = 45
    SAMPLE_SLOTS = 46
    LOGPROBS = 47
    TABLE_STORE = 49
    LAYER_NORM = 50
    GELU = 51
    MATMUL_FUSED_CONV1D_IDS = 52
    QKV_FUSED_ROPE_KV_WRITE = 53
    MOE_GATE_UP_WMMA_F16 = 54
    MOE_DOWN_ACC_WMMA_F16 = 55
    SHARED_EXPERT_WMMA_F16 = 56
    MATMUL_WMMA_BF16 = 57
    MOE_GATE_UP_WMMA_BF16 = 58
    MOE_DOWN_ACC_WMMA_BF16 = 59
    SHARED_EXPERT_WMMA_BF16 = 60


# float: f32; weight: any ggml type; index: i32; cache: one of dtypes.CACHE_TYPES
Kind = Literal["float", "weight", "index", "any", "cache"]


@dataclass(frozen=True, slots=True)
class Port:
    """One operand. `inplace` names the input whose storage an output updates. Trailing optional operands may be
    missing when a node is created or read, because older graphs do not have them: such inputs become absent."""

    name: str
    shape: tuple[str, ...]
    kind: Kind = "float"
    optional: bool = False
    inplace: str | None = None


@dataclass(frozen=True, slots=True)
class Attr:
    name: str
    type: type
    default: object = None  # None: required
    choices: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class OpSpec:
    op: Op
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attrs: tuple[Attr, ...] = ()
    require: tuple[str, ...] = ()  # further arithmetic conditions over bound names
    variadic: bool = False  # any number of inputs up to MAX_BINDINGS (BARRIER)


def _float_port(name: str, *shape: str, optional: bool = False, inplace: str | None = None) -> Port:
    return Port(name, shape, "float", optional, inplace)


def _cache_port(name: str, *shape: str, inplace: str | None = None) -> Port:
    return Port(name, shape, "cache", inplace=inplace)


def _weight_port(name: str, *shape: str, optional: bool = False) -> Port:
    return Port(name, shape, "weight", optional)


def _index_port(name: str, *shape: str, optional: bool = False, inplace: str | None = None) -> Port:
    return Port(name, shape, "index", optional, inplace)


_EPS = Attr("eps", float)
_EPS_OF_NORM = Attr("eps", float, 1e-6)  # of norm_w, where there is one
_GLU = Attr(
    "activation", str, "none", choices=("none", "silu", "gelu")
)  # gate is then activation(gate) * up, alone
# clamped: gpt-oss's, gate sigmoid(1.702 gate) (up + 1) of gate at most 7 and up within -7 and 7
_EXPERT_GLU = Attr("activation", str, "none", choices=("none", "silu", "gelu", "clamped"))
_ACTIVATION = Attr("activation", str, "silu", choices=("silu", "gelu"))
_EXPERT_ACTIVATION = Attr("activation", str, "silu", choices=("silu", "gelu", "clamped"))
# Targets are distinct, and none is another sequence's source: a kernel may write rows while others are read.
_DISJOINT = Attr("disjoint", bool, False)
_ROPE_ATTRS = (Attr("head_dim", int), Attr("mode", str, choices=("norm", "neox")))
_PAGED = (_index_port("position", "T"), _index_port("slot", "T"), _index_port("page_table", "slots", "pages"))
_PAGE = Attr("page_tokens", int, 16)
_ATTENTION_ATTRS = (
    Attr("heads", int),
    Attr("kv_heads", int),
    Attr("head_dim", int),
    Attr("value_dim", int),
    Attr("scale", float),
    Attr("window", int, 0),  # 0: every earlier key; W: the W latest keys, the query's own included
    Attr("cap", float, 0.0),  # bounds the scores as SOFTCAP does, before the mask; 0: no bound
    _PAGE,
)
_ATTENTION_IN = (
    _float_port("q", "T", "heads*head_dim"),
    _cache_port("kv_k", "kv_rows", "kv_heads*head_dim"),
    _cache_port("kv_v", "kv_rows", "kv_heads*value_dim"),
    *_PAGED,
)
# SIGMOID_MUL's, of the result; a head's gate has gate_skip other columns before it
_ATTENTION_GATE = _float_port("gate", "T", "heads*(value_dim + gate_skip)", optional=True)
# A logit of each head that takes part in the softmax, as a key without a value does
_ATTENTION_SINKS = _weight_port("sinks", "heads", optional=True)
_ATTENTION_OUT = (_float_port("out", "T", "heads*value_dim"),)
_ATTENTION_REQUIRE = ("heads % kv_heads == 0",)
_DELTA_ATTRS = (
    Attr("k_heads", int),
    Attr("v_heads", int),
    Attr("head_dim", int),
    _EPS,
    # which k head a v head reads: tiled n % k_heads (qwen35*), grouped n // (v_heads / k_heads) (qwen3next)
    Attr("grouping", str, choices=("tiled", "grouped")),
)
_DELTA_IN = (
    _float_port("conv_out", "T", "2*k_heads*head_dim + v_heads*head_dim"),
    _float_port("beta", "T", "v_heads"),
    _float_port("alpha", "T", "v_heads"),
    _weight_port("dt_bias", "v_heads"),
    _weight_port("a", "v_heads"),
)
_DELTA_STATE = ("v_heads", "head_dim", "head_dim")  # [head][value dim j][key dim i], i contiguous
_CONV_IN = (_float_port("x", "T", "C"), _weight_port("weight", "C", "K"))
_CONV_BIAS = _weight_port("bias", "C", optional=True)
_SILU = Attr("silu", bool, True)
_GATE_UP = (_float_port("gate", "T", "..."), _float_port("up", "T", "..."))
_OF_SLOTS = (  # which slot's row of logits, the absolute position of the token to be drawn, ir/slot_record.py
    _index_port("row_slot", "L"),
    _index_port("sample_position", "L"),
    _index_port("record", "slots", "words"),
    _index_port("token_counts", "P", "V"),  # bit 31: in the prompt; below it, how often in the output
)

# Norms of the heads, rotation and the cache write. q_skip: other columns behind each head of q
_ROTATION_IN = (
    _weight_port("q_norm_w", "head_dim", optional=True),
    _weight_port("k_norm_w", "head_dim", optional=True),
    _weight_port("cos", "ctx", "R"),
    _weight_port("sin", "ctx", "R"),
    *_PAGED,
    _cache_port("kv_k", "kv_rows", "K"),
    _cache_port("kv_v", "kv_rows", "V"),
)
_ROTATION_OUT = (
    _float_port("q_out", "T", "Q//(head_dim + q_skip)*head_dim"),
    _cache_port("kv_k_out", "kv_rows", "K", inplace="kv_k"),
    _cache_port("kv_v_out", "kv_rows", "V", inplace="kv_v"),
)
_ROTATION_ATTRS = (*_ROPE_ATTRS, _PAGE, Attr("q_skip", int, 0))
_ROTATION_REQUIRE = ("Q % (head_dim + q_skip) == 0", "K % head_dim == 0", "2*R <= head_dim")
OPS: dict[Op, OpSpec] = {
    spec.op: spec
    for spec in (
        OpSpec(
            Op.EMBED,
            (_index_port("token_id", "T"), _weight_port("table", "V", "D")),
            (_float_port("hidden", "T", "D"),),
        ),
        OpSpec(
            Op.RMS_NORM,  # over groups of `size` neighbours, the whole row or each head; added to residual
            (
                _float_port("x", "T", "K"),
                _weight_port("weight", "size", optional=True),
                _float_port("residual", "T", "K", optional=True),
            ),
            (_float_port("y", "T", "K"),),
            (_EPS, Attr("size", int)),
            ("K % size == 0",),
        ),
        OpSpec(
            Op.RMS_NORM_FUSED_QKV,
            (
                _float_port("x", "T", "D"),
                _weight_port("norm_w", "D"),
                _weight_port("q_w", "Q", "D"),
                _weight_port("k_w", "K", "D"),
                _weight_port("v_w", "V", "D"),
                _weight_port("q_bias", "Q", optional=True),
                _weight_port("k_bias", "K", optional=True),
                _weight_port("v_bias", "V", optional=True),
            ),
            (_float_port("q", "T", "Q"), _float_port("k", "T", "K"), _float_port("v", "T", "V")),
            (_EPS,),
        ),
        OpSpec(
            Op.RMS_NORM_FUSED_MLP_GATE_UP,
            (
                _float_port("x", "T", "D"),
                _weight_port("norm_w", "D"),
                _weight_port("gate_w", "F", "D"),
                _weight_port("up_w", "F", "D"),
            ),
            (_float_port("gate", "T", "F"), _float_port("up", "T", "F", optional=True)),
            (_EPS, _GLU),
        ),
        OpSpec(
            Op.ROPE,  # rotates head dims [offset, offset + 2R) by rows of the host's cos/sin tables
            (
                _float_port("x", "T", "K"),
                _index_port("position", "T"),
                _weight_port("cos", "ctx", "R"),
                _weight_port("sin", "ctx", "R"),
            ),
            (_float_port("y", "T", "K"),),
            (*_ROPE_ATTRS, Attr("offset", int, 0)),
            ("K % head_dim == 0", "offset + 2*R <= head_dim"),
        ),
        OpSpec(
            Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            (
                _float_port("q", "T", "Q"),
                _float_port("k", "T", "K"),
                _float_port("v", "T", "V"),
                *_ROTATION_IN,
            ),
            _ROTATION_OUT,
            (_EPS, *_ROTATION_ATTRS),
            _ROTATION_REQUIRE,
        ),
        OpSpec(
            Op.FLASH_ATTN,
            (*_ATTENTION_IN, _ATTENTION_GATE, _ATTENTION_SINKS),
            _ATTENTION_OUT,
            (*_ATTENTION_ATTRS, Attr("gate_skip", int, 0)),
            _ATTENTION_REQUIRE,
        ),
        OpSpec(
            Op.FLASH_ATTN_BATCHED,
            (*_ATTENTION_IN, _ATTENTION_SINKS),
            _ATTENTION_OUT,
            _ATTENTION_ATTRS,
            _ATTENTION_REQUIRE,
        ),
        OpSpec(
            Op.MOE_GATE_TOPK,
            (
                _float_port("x", "T", "D"),
                _weight_port("gate_w", "E", "D"),
                _weight_port("select_bias", "E", optional=True),
                _weight_port("norm_w", "D", optional=True),  # x is the RMS norm of itself by it
                # MOE_GATE_UP's of the selected experts, with an activation: `act` is its result
                _weight_port("expert_gate_w", "E", "F", "D", optional=True),
                _weight_port("expert_up_w", "E", "F", "D", optional=True),
                _weight_port("gate_scale", "E", optional=True),
                _weight_port("up_scale", "E", optional=True),
                _weight_port("bias", "E", optional=True),  # of the logits
            ),
            (
                _float_port("logits", "T", "E"),
                _index_port("ids", "T", "k"),
                _float_port("weights", "T", "k"),
                _float_port("act", "T", "k", "F", optional=True),
            ),
            (
                Attr("k", int),
                # softmax_selected: the softmax of the selected logits only
                Attr("gating", str, "softmax", choices=("softmax", "sigmoid", "softmax_selected")),
                Attr("renormalise", bool, True),
                Attr("scale", float, 1.0),
                Attr("groups", int, 1),
                Attr("groups_used", int, 1),
                _EPS_OF_NORM,
                _ACTIVATION,
            ),
            ("k <= E", "E % groups == 0", "groups_used <= groups"),
        ),
        OpSpec(
            Op.MOE_GATE_UP,
            (
                _float_port("x", "T", "D"),
                _weight_port("gate_w", "E", "F", "D"),
                _weight_port("up_w", "E", "F", "D"),
                _index_port("ids", "T", "k"),
                _weight_port("gate_scale", "E", optional=True),
                _weight_port("up_scale", "E", optional=True),
                _weight_port("norm_w", "D", optional=True),  # x is the RMS norm of itself by it
                _weight_port("gate_bias", "E", "F", optional=True),
                _weight_port("up_bias", "E", "F", optional=True),
            ),
            (_float_port("gate", "T", "k", "F"), _float_port("up", "T", "k", "F", optional=True)),
            (_EXPERT_GLU, _EPS_OF_NORM),
        ),
        OpSpec(
            Op.MOE_SWIGLU,
            (_float_port("gate", "T", "k", "F"), _float_port("up", "T", "k", "F")),
            (_float_port("y", "T", "k", "F"),),
            (_EXPERT_ACTIVATION,),
        ),
        OpSpec(
            Op.MOE_DOWN_ACC,  # out = (hidden + sum over the chosen, in selection order, from +0) + residual
            (
                _float_port("x", "T", "k", "F"),
                _weight_port("down_w", "E", "D", "F"),
                _index_port("ids", "T", "k"),
                _float_port("weights", "T", "k"),
                _weight_port("expert_scale", "E", optional=True),
                _float_port("hidden", "T", "D", optional=True),
                _float_port("residual", "T", "D", optional=True),
                _weight_port("bias", "E", "D", optional=True),  # of the down projections
            ),
            (_float_port("out", "T", "D"),),
        ),
        OpSpec(
            Op.SHARED_EXPERT,  # out = hidden + sigmoid(gate_inp . x) * down(silu(gate x) * up x)
            (
                _float_port("x", "T", "D"),
                _weight_port("gate_w", "F", "D"),
                _weight_port("up_w", "F", "D"),
                _weight_port("down_w", "D", "F"),
                _weight_port("gate_inp", "D", optional=True),
                _float_port("hidden", "T", "D", optional=True),
                *(_weight_port(f"{which}_scale", "one", optional=True) for which in ("gate", "up", "down")),
                _weight_port("norm_w", "D", optional=True),  # x is the RMS norm of itself by it
            ),
            (_float_port("out", "T", "D"),),
            (_EPS_OF_NORM,),
        ),
        OpSpec(
            Op.SSM_CONV1D,  # plain form: gathered state in, new state out
            (*_CONV_IN, _float_port("state", "S", "K-1", "C"), _index_port("sequence", "T"), _CONV_BIAS),
            (_float_port("y", "T", "C"), _float_port("state_out", "S", "K-1", "C")),
            (_SILU,),
        ),
        OpSpec(
            Op.SSM_DELTA_NET,  # plain form
            (*_DELTA_IN, _float_port("state", "S", *_DELTA_STATE), _index_port("sequence", "T")),
            (_float_port("y", "T", "v_heads*head_dim"), _float_port("state_out", "S", *_DELTA_STATE)),
            _DELTA_ATTRS,
        ),
        OpSpec(
            Op.SSM_GATED_NORM,
            (_float_port("x", "T", "K"), _float_port("z", "T", "K"), _weight_port("norm_w", "D")),
            (_float_port("y", "T", "K"),),
            (_EPS,),
            ("K % D == 0",),
        ),
        OpSpec(
            Op.RESIDUAL_RMS_NORM,
            (_float_port("x", "T", "D"), _float_port("residual", "T", "D"), _weight_port("norm_w", "D")),
            (_float_port("hidden", "T", "D"), _float_port("y", "T", "D")),
            (_EPS,),
        ),
        OpSpec(
            Op.LM_HEAD,  # only the rows that are asked for
            (
                _float_port("x", "T", "D"),
                _weight_port("output_w", "V", "D"),
                _index_port("row", "L"),
                _weight_port("bias", "V", optional=True),
            ),
            (_float_port("logits", "L", "V"),),
        ),
        OpSpec(
            Op.ARGMAX,  # nonfinite: the index of the row's first logit that is NaN or infinite, -1 for none
            (_float_port("logits", "L", "V"),),
            (_index_port("token", "L"), _index_port("nonfinite", "L", optional=True)),
        ),
        OpSpec(
            Op.SAMPLE,
            (
                _float_port("logits", "L", "V"),
                _index_port("seed", "L", "two"),  # low and high 32 bits
                _float_port("sampling", "L", "four"),  # temperature, top_k, top_p, min_p
                _index_port("sample_choice", "L"),  # which of a prompt's answers, from 0
                _index_port("sample_position", "L"),
            ),
            (_index_port("token", "L"),),
            (),
            ("two == 2", "four == 4"),
        ),
        OpSpec(
            Op.KV_WRITE_BATCHED,
            (
                _float_port("k", "T", "K"),
                _float_port("v", "T", "V"),
                *_PAGED,
                _cache_port("kv_k", "kv_rows", "K"),
                _cache_port("kv_v", "kv_rows", "V"),
            ),
            (
                _cache_port("kv_k_out", "kv_rows", "K", inplace="kv_k"),
                _cache_port("kv_v_out", "kv_rows", "V", inplace="kv_v"),
            ),
            (_PAGE,),
        ),
        OpSpec(
            Op.MATMUL_WMMA_F16,
            (
                _float_port("a", "T", "K"),
                _weight_port("b", "N", "K"),
                _weight_port("bias", "N", optional=True),
                _weight_port("scale", "one", optional=True),
            ),
            (_float_port("c", "T", "N"),),
        ),
        OpSpec(
            Op.MATMUL_WMMA_Q4K,
            (
                _float_port("a", "T", "K"),
                _weight_port("b", "N", "K"),
                _weight_port("bias", "N", optional=True),
                _weight_port("scale", "one", optional=True),
            ),
            (_float_port("c", "T", "N"),),
        ),
        OpSpec(Op.BARRIER, (), (), variadic=True),
        OpSpec(
            Op.STREAM_OUT,  # append ir/ring_entry.py's entries to the ring; cursor counts entries ever written
            (
                _index_port("token", "L"),
                *_OF_SLOTS[:3],
                _index_port("ring", "capacity", "four"),
                _index_port("cursor", "one"),
            ),
            (
                _index_port("ring_out", "capacity", "four", inplace="ring"),
                _index_port("cursor_out", "one", inplace="cursor"),
            ),
            (),
            ("words == 64", "four == 4", "one == 1"),
        ),
        OpSpec(
            Op.LOAD_REQUEST_STATE,
            (Port("table", ("slots", "..."), "any"), _index_port("slot", "S")),
            (Port("value", ("S", "..."), "any"),),
        ),
        OpSpec(
            Op.STORE_REQUEST_STATE,
            (Port("value", ("S", "..."), "any"), _index_port("slot", "S"), Port("table", ("slots", "..."), "any")),
            (Port("table_out", ("slots", "..."), "any", inplace="table"),),
        ),
        OpSpec(
            Op.VERIFY_K,  # how many drafted tokens the target agrees with, and the target's token after them
            (_index_port("draft", "S", "K"), _index_port("target", "S", "K+1")),
            (_index_port("accept_len", "S"), _index_port("next_token", "S")),
        ),
        OpSpec(
            Op.MATMUL,
            (
                _float_port("x", "T", "K"),
                _weight_port("w", "N", "K"),
                _weight_port("bias", "N", optional=True),
                _weight_port("scale", "one", optional=True),
                # x is the RMS norm of itself by it, over each of `norm_groups` parts of a row
                _weight_port("norm_w", "K//norm_groups", optional=True),
                _float_port("residual", "T", "N", optional=True),
                _float_port("gate", "T", "K", optional=True),  # x is then multiplied by silu(gate)
            ),
            (_float_port("y", "T", "N"),),
            (_EPS_OF_NORM, Attr("norm_groups", int, 1)),
            ("K % norm_groups == 0",),
        ),
        OpSpec(Op.SWIGLU, _GATE_UP, (_float_port("y", "T", "..."),)),
        OpSpec(Op.GEGLU, _GATE_UP, (_float_port("y", "T", "..."),)),
        OpSpec(
            Op.SIGMOID_MUL,
            (_float_port("x", "T", "N"), _float_port("gate", "T", "N")),
            (_float_port("y", "T", "N"),),
        ),
        OpSpec(Op.ADD, (_float_port("a", "T", "N"), _float_port("b", "T", "N")), (_float_port("y", "T", "N"),)),
        OpSpec(
            Op.SCALE,  # y = (x * factor) * weight[0]
            (_float_port("x", "T", "N"), _weight_port("weight", "one", optional=True)),
            (_float_port("y", "T", "N"),),
            (Attr("factor", float, 1.0),),
        ),
        OpSpec(
            Op.ROW_SCALE,
            (_float_port("x", "T", "N"), _index_port("position", "T"), _weight_port("table", "ctx")),
            (_float_port("y", "T", "N"),),
        ),
        OpSpec(
            Op.SLICE,  # of every `group` neighbours, [offset, offset + size)
            (_float_port("x", "T", "N"),),
            (_float_port("y", "T", "N//group*size"),),
            (Attr("group", int), Attr("offset", int), Attr("size", int)),
            ("N % group == 0", "offset + size <= group"),
        ),
        OpSpec(Op.SOFTCAP, (_float_port("x", "T", "N"),), (_float_port("y", "T", "N"),), (Attr("cap", float),)),
        OpSpec(
            Op.MLA_ABSORB,  # per head: [k_b . q_nope | q_pe]
            (_float_port("q", "T", "heads*(nope + rope)"), _weight_port("k_b", "heads", "latent", "nope")),
            (_float_port("y", "T", "heads*(latent + rope)"),),
            (Attr("heads", int), Attr("nope", int), Attr("rope", int), Attr("latent", int)),
        ),
        OpSpec(
            Op.MLA_EXPAND,  # per head [k_nope | v] and one shared k_pe -> plain K and V
            (_float_port("kv", "T", "heads*(nope + value_dim)"), _float_port("k_pe", "T", "rope")),
            (_float_port("k", "T", "heads*(nope + rope)"), _float_port("v", "T", "heads*value_dim")),
            (Attr("heads", int), Attr("nope", int), Attr("rope", int), Attr("value_dim", int)),
        ),
        OpSpec(
            Op.MLA_FLASH_ATTN,  # keys [latent | pe], values = latent, then v_b per head
            (
                _float_port("q", "T", "heads*(latent + rope)"),
                _cache_port("kv_latent", "kv_rows", "latent"),
                _cache_port("kv_pe", "kv_rows", "rope"),
                *_PAGED,
                _weight_port("v_b", "heads", "value_dim", "latent"),
            ),
            (_float_port("out", "T", "heads*value_dim"),),
            (
                Attr("heads", int),
                Attr("latent", int),
                Attr("rope", int),
                Attr("value_dim", int),
                Attr("scale", float),
                _PAGE,
            ),
        ),
        OpSpec(
            Op.SSM_SCAN,  # Mamba-1 selective scan, plain form
            (
                _float_port("u", "T", "I"),
                _float_port("dt", "T", "I"),  # before softplus
                _float_port("b", "T", "N"),
                _float_port("c", "T", "N"),
                _weight_port("a", "I", "N"),
                _weight_port("d", "I"),
                _float_port("state", "S", "I", "N"),
                _index_port("sequence", "T"),
            ),
            (_float_port("y", "T", "I"), _float_port("state_out", "S", "I", "N")),
        ),
        OpSpec(
            Op.SSM_CONV1D_UPDATE,  # row s of the cache belongs to sequence s
            (*_CONV_IN, _float_port("state", "slots", "K-1", "C"), _index_port("sequence", "T"), _CONV_BIAS),
            (_float_port("y", "T", "C"), _float_port("state_out", "slots", "K-1", "C", inplace="state")),
            (_SILU,),
        ),
        OpSpec(
            Op.SSM_CONV1D_UPDATE_IDS,  # sequence s reads row source[s] of the cache and writes row target[s]
            (
                *_CONV_IN,
                _float_port("state", "slots", "K-1", "C"),
                _index_port("sequence", "T"),
                _index_port("source", "S"),
                _index_port("target", "S"),
                _CONV_BIAS,
            ),
            (_float_port("y", "T", "C"), _float_port("state_out", "slots", "K-1", "C", inplace="state")),
            (_SILU, _DISJOINT),
        ),
        OpSpec(
            Op.SSM_DELTA_NET_INPLACE,
            (*_DELTA_IN, _float_port("state", "slots", *_DELTA_STATE), _index_port("sequence", "T")),
            (
                _float_port("y", "T", "v_heads*head_dim"),
                _float_port("state_out", "slots", *_DELTA_STATE, inplace="state"),
            ),
            _DELTA_ATTRS,
        ),
        OpSpec(
            Op.SSM_DELTA_NET_INPLACE_IDS,
            (
                *_DELTA_IN,
                _float_port("state", "slots", *_DELTA_STATE),
                _index_port("sequence", "T"),
                _index_port("source", "S"),
                _index_port("target", "S"),
            ),
            (
                _float_port("y", "T", "v_heads*head_dim"),
                _float_port("state_out", "slots", *_DELTA_STATE, inplace="state"),
            ),
            (*_DELTA_ATTRS, _DISJOINT),
        ),
        OpSpec(
            Op.LOGITS_ADJUST,  # mask, bias, repetition, frequency and presence, min_tokens, in this order
            (
                _float_port("logits", "L", "V"),
                *_OF_SLOTS,
                _index_port("end_id", "ends"),  # -1: none
                _index_port("bias_id", "B", "biases", optional=True),  # ascending
                _float_port("bias_value", "B", "biases", optional=True),
                _index_port("mask", "M", "(V + 31)//32", optional=True),  # bit id % 32 of dword id // 32: allowed
                _index_port("mask_row", "L", optional=True),  # -1: none
            ),
            (_float_port("adjusted", "L", "V"),),
            (),
            ("words == 64",),
        ),
        OpSpec(
            Op.SAMPLE_SLOTS,  # SAMPLE by the slot's record; token -1 where the largest logit is no finite number
            (_float_port("logits", "L", "V"), *_OF_SLOTS),
            (_index_port("token", "L"), _index_port("token_counts_out", "P", "V", inplace="token_counts")),
            (),
            ("words == 64",),
        ),
        OpSpec(
            Op.LOGPROBS,  # log softmax of the token, NaN where there is none, and of the `top` likeliest
            (_float_port("logits", "L", "V"), _index_port("token", "L")),
            (
                _float_port("logprob", "L"),
                _index_port("top_id", "L", "top", optional=True),
                _float_port("top_logprob", "L", "top", optional=True),
            ),
            (Attr("top", int),),
            ("top <= V",),
        ),
        OpSpec(
            Op.TABLE_STORE,  # table.flat[entry[i]] = value[i]; a step's entries are distinct and inside the table
            (_index_port("entry", "E"), _index_port("value", "E"), _index_port("table", "slots", "pages")),
            (_index_port("table_out", "slots", "pages", inplace="table"),),
        ),
        OpSpec(
            Op.LAYER_NORM,  # of whole rows
            (_float_port("x", "T", "K"), _weight_port("weight", "K"), _weight_port("bias", "K", optional=True)),
            (_float_port("y", "T", "K"),),
            (_EPS,),
        ),
        OpSpec(Op.GELU, (_float_port("x", "T", "N"),), (_float_port("y", "T", "N"),)),
        OpSpec(
            Op.MATMUL_FUSED_CONV1D_IDS,  # SSM_CONV1D_UPDATE_IDS of MATMUL
            (
                _float_port("x", "T", "D"),
                _weight_port("w", "C", "D"),
                _weight_port("conv_w", "C", "K"),
                _float_port("state", "slots", "K-1", "C"),
                _index_port("sequence", "T"),
                _index_port("source", "S"),
                _index_port("target", "S"),
                _CONV_BIAS,
                _weight_port("norm_w", "D", optional=True),  # x is the RMS norm of itself by it
            ),
            (_float_port("y", "T", "C"), _float_port("state_out", "slots", "K-1", "C", inplace="state")),
            (_SILU, _DISJOINT, _EPS_OF_NORM),
        ),
        OpSpec(
            Op.QKV_FUSED_ROPE_KV_WRITE,  # RMS_NORM_FUSED_ROPE_KV_WRITE of RMS_NORM_FUSED_QKV, whose q is an output
            (
                _float_port("x", "T", "D"),
                _weight_port("norm_w", "D"),
                _weight_port("q_w", "Q", "D"),
                _weight_port("k_w", "K", "D"),
                _weight_port("v_w", "V", "D"),
                *_ROTATION_IN,
            ),
            (_float_port("q", "T", "Q"), *_ROTATION_OUT),
            (_EPS, Attr("head_eps", float, 1e-6), *_ROTATION_ATTRS),
            _ROTATION_REQUIRE,
        ),
    )
}
WMMA_PRODUCTS = (Op.MATMUL, Op.MOE_GATE_UP, Op.MOE_DOWN_ACC, Op.SHARED_EXPERT)
WMMA_FORMS = {  # by ordering: the opcodes whose products have its sums; operands as before, but fewer of MATMUL
    f"wmma-{halves.lower()}": {op: Op[f"{op.name}_WMMA_{halves}"] for op in WMMA_PRODUCTS}
    for halves in ("F16", "BF16")
}
WMMA_ORDERINGS: dict[Op, str] = {
    Op.MATMUL_WMMA_Q4K: "wmma-f16",
    **{form: ordering for ordering, forms in WMMA_FORMS.items() for form in forms.values()},
}
OPS[Op.MATMUL_WMMA_BF16] = replace(OPS[Op.MATMUL_WMMA_F16], op=Op.MATMUL_WMMA_BF16)
OPS |= {
    form: replace(OPS[op], op=form)
    for forms in WMMA_FORMS.values()
    for op, form in forms.items()
    if form not in OPS
}


def list_forms(op: Op) -> tuple[Op, ...]:
    """Return an opcode and its forms with products of other orderings."""
    return op, *(forms[op] for forms in WMMA_FORMS.values())


def with_absent(op: int, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Return a node's inputs with "" (absent) for missing optional ones at the end."""
    spec = OPS[Op(op)]
    missing = spec.inputs[len(inputs) :]
    return inputs + ("",) * len(missing) if missing and all(port.optional for port in missing) else inputs
