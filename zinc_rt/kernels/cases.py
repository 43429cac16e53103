"""One node as a line of text, with its operands: the description of a kernel test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import prod
from typing import Any

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.ir.dtypes import CACHE_TYPES, count_row_bytes, find_array_layout, find_block, is_dtype
from zinc_rt.ir.graph import SYMBOLS
from zinc_rt.ir.op import OPS, Op, Port
from zinc_rt.ir.shapes import ShapeError, evaluate
from zinc_rt.ir.slot_record import STOP_IDS, SlotFlag, free_records, seal_records, view_dwords
from zinc_rt.kernels.reference.paging import write_cache
from zinc_rt.kernels.weight import Weight

Operand = np.ndarray | Weight | None


@dataclass(frozen=True, slots=True)
class Case:
    """One test case. `dtype`: of weight matrices; `vector`: of biases and similar vectors, else f32. `values`: a
    name in VALUES. `room`: capacities. `kv`: type of caches, or types of
    keys and of values, "f16+q8_0"."""

    op: Op
    dims: Mapping[str, int]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "f32"
    vector: str = "f32"
    without: tuple[str, ...] = ()
    values: str = "mixed"
    room: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    kv: str = "f32"

    @property
    def name(self) -> str:
        """Return the opcode and the types of weights that it reads."""
        return self.op.name if self.dtype == "f32" else f"{self.op.name} {self.dtype}"

    @property
    def names(self) -> dict[str, int]:
        """Return the names that dimension expressions may use: sizes, and integer attributes."""
        attrs = {**{attr.name: attr.default for attr in OPS[self.op].attrs}, **self.attrs}
        return {**self.dims, **{name: value for name, value in attrs.items() if type(value) is int}}

    def text(self) -> str:
        """Format the case as one line, which `parse` reads."""
        parts = [self.op.name, *(f"{name}={value}" for name, value in self.dims.items())]
        parts += [f"{name}={_format_value(value)}" for name, value in self.attrs.items()]
        for name in ("dtype", "vector", "values", "seed", "kv"):
            if (value := str(getattr(self, name))) != _DEFAULTS[name]:
                parts.append(f"{name}={value}")
        parts += [f"{symbol}={count}" for symbol, count in self.room.items()]
        return " ".join([*parts, *(f"-{port}" for port in self.without)])

    def shape(self, port: Port) -> tuple[int, ...]:
        """Return the shape of a port. Raise ShapeError for a size that the case does not define."""
        named = self.names
        shape = tuple(_evaluate_number(part, named) for part in port.shape if part != "...")
        return shape + ((named["rest"],) if port.shape[-1] == "..." and "rest" in named else ())

    def find_dtype(self, port: Port) -> str:
        """Return ggml's name of a weight's type. Tables of cosines and sines, and taps of a convolution of a
        projection, are always f32; biases of experts are vectors."""
        if port.name in ("cos", "sin", "conv_w"):
            return "f32"
        if port.name.endswith("bias"):
            return self.vector
        if len(port.shape) > 1 or port.name in _BY_DTYPE.get(self.op, ()):
            return self.dtype
        return self.vector

    def find_cache_dtype(self, port: Port) -> str:
        """Return the type of a cache."""
        keys, _, values = self.kv.partition("+")
        return values if values and port.name == "kv_v" else keys

    def check_node(self) -> str:
        """Return why the node is invalid (a size or a condition of the opcode's row is violated); empty if it is
        valid.
        """
        spec, named = OPS[self.op], self.names
        try:
            inputs = (port for port in spec.inputs if port.name not in self.without)
            in_place = (port for port in spec.outputs if port.inplace)
            for port in (*inputs, *in_place, *self.fresh_ports()):
                shape = self.shape(port)
                if min(shape, default=1) < 1:
                    return f"{port.name} has shape {shape}"
                if port.kind == "weight":
                    count_row_bytes(self.find_dtype(port), shape[-1])
                if port.kind == "cache":
                    count_row_bytes(self.find_cache_dtype(port), shape[-1])
            conditions = (*spec.require, *_list_conditions(self.op))
            broken = [condition for condition in conditions if not evaluate(condition, named)]
        except (ShapeError, ValueError) as error:
            return str(error)
        return f"expected {broken[0]}" if broken else ""

    def fresh_ports(self) -> tuple[Port, ...]:
        """Return the ports of the outputs that are not in place, without optional ones of absent operands."""
        spec = OPS[self.op]
        used = {part for port in spec.inputs if port.name not in self.without for part in port.shape}
        known = used | self.names.keys()
        return tuple(
            port
            for port in spec.outputs
            if not port.inplace and not (port.optional and any(part not in known for part in port.shape))
        )

    def operands(self) -> tuple[Operand, ...]:
        """Return the operands in port order, None for absent ones; every call returns the same."""
        random = np.random.default_rng(self.seed)
        argument = {
            port.name: None if port.name in self.without else _make_operand(self, port, random)
            for port in OPS[self.op].inputs
        }
        if "page_table" in argument:
            _hide_unwritten(self, argument)
        if self.attrs.get("disjoint"):
            _make_disjoint(argument, random)
        return tuple(argument.values())

    def outputs(self, inputs: Sequence[Operand], fresh: Sequence[np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Return name and expected value of each output. For an in-place output it is the modified input."""
        spec = OPS[self.op]
        argument = dict(zip((port.name for port in spec.inputs), inputs, strict=False))
        outputs = iter(fresh)
        for port in spec.outputs:
            value = argument[port.inplace] if port.inplace else next(outputs, None)
            if value is None:  # an optional one at the end
                return
            assert isinstance(value, np.ndarray)
            yield port.name, value


# Conditions that keep indices inside their tables and writes disjoint, by a port's name and shape.
_FITS: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {
    ("position", ("T",)): ("T <= ctx",),
    ("sequence", ("T",)): ("S <= T",),
    ("source", ("S",)): ("S <= slots",),
    ("target", ("S",)): ("S <= slots",),
    ("slot", ("S",)): ("S <= slots",),
    ("entry", ("E",)): ("E <= slots*pages",),
    ("bias_id", ("B", "biases")): ("biases <= V",),
}
_PAGED = ("ctx <= pages*page_tokens", "slots*pages*page_tokens <= kv_rows")


def _list_conditions(op: Op) -> tuple[str, ...]:
    ports = OPS[op].inputs
    conditions = [condition for port in ports for condition in _FITS.get((port.name, port.shape), ())]
    names = {port.name: port for port in ports}
    if {"page_table", "position"} <= names.keys():
        conditions += _PAGED
    if "sequence" in names and names["state"].shape[0] == "slots":
        conditions.append("S <= slots")
    return tuple(dict.fromkeys(conditions))


_DEFAULTS = {"dtype": "f32", "vector": "f32", "values": "mixed", "seed": "0", "kv": "f32"}
# Weight vectors that projections read like matrices.
_BY_DTYPE: dict[Op, tuple[str, ...]] = {Op.SHARED_EXPERT: ("gate_inp",)}


def parse(text: str) -> Case:
    """Parse a case from its line. Raise UsageError for a malformed line or an invalid node."""
    first, *words = text.split() or [""]
    if first not in Op.__members__:
        near = get_close_matches(first.upper(), Op.__members__, 3)
        raise UsageError(
            f"{text!r}: unknown opcode {first!r}",
            next=f"did you mean {', '.join(near)}?"
            if near
            else "start the line with an opcode, for example ADD T=3 N=37",
        )
    op = Op[first]
    parsed = _CaseBuilder(op)
    for word in words:
        try:
            parsed.add(word)
        except ValueError as error:
            raise UsageError(f"{text!r}: {word}: {error}") from error
    case = parsed.case()
    for attr in OPS[op].attrs:
        if attr.default is None and attr.name not in case.attrs:
            raise UsageError(f"{text!r}: {op.name} needs {attr.name}=")
    if refusal := case.check_node():
        raise UsageError(f"{text!r}: {refusal}")
    return case


class _CaseBuilder:
    """The parsed words of a line so far."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._kinds = {attr.name: attr for attr in OPS[op].attrs}
        self._dims: dict[str, int] = {}
        self._attrs: dict[str, Any] = {}
        self._room: dict[str, int] = {}
        self._without: list[str] = []
        self._words: dict[str, str] = {}

    def add(self, word: str) -> None:
        """Parse a word. Raise ValueError with the reason if it is malformed."""
        name, sign, value = word.partition("=")
        if word.startswith("-"):
            if word[1:] not in {port.name for port in OPS[self._op].inputs if port.optional}:
                raise ValueError(f"{self._op.name} has no optional operand with that name")
            self._without.append(word[1:])
        elif not sign:
            raise ValueError("expected NAME=VALUE or -OPERAND")
        elif name in self._kinds:
            attr = self._kinds[name]
            self._attrs[name] = _read(value, attr.type)
            if attr.choices and self._attrs[name] not in attr.choices:
                raise ValueError(f"expected one of {', '.join(map(str, attr.choices))}")
        elif name in _DEFAULTS:
            self._words[name] = _check_value(name, value)
        elif name in SYMBOLS:
            self._room[name] = int(value)
        else:
            self._dims[name] = int(value)

    def case(self) -> Case:
        words = {**_DEFAULTS, **self._words}
        return Case(
            self._op,
            self._dims,
            self._attrs,
            words["dtype"],
            words["vector"],
            tuple(self._without),
            words["values"],
            self._room,
            int(words["seed"]),
            words["kv"],
        )


def _check_value(name: str, value: str) -> str:
    if name in ("dtype", "vector") and not is_dtype(value):
        raise ValueError("ggml has no type with that name")
    if name == "kv" and not {*CACHE_TYPES} >= {*value.split("+", 1)}:
        raise ValueError(f"expected one of {', '.join(CACHE_TYPES)}, or two of them with + between")
    if name == "values" and value not in VALUES:
        raise ValueError(f"expected one of {', '.join(VALUES)}")
    if name == "seed" and not value.isdecimal():
        raise ValueError("expected a number from 0")
    return value


def _read(text: str, kind: type) -> Any:
    if kind is bool:
        if text not in ("True", "False"):
            raise ValueError("expected True or False")
        return text == "True"
    return kind(text)


def _format_value(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _evaluate_number(expression: str, names: Mapping[str, int]) -> int:
    value = evaluate(expression, names)
    assert isinstance(value, int)
    return int(value)


def _make_operand(case: Case, port: Port, random: np.random.Generator) -> Operand:
    shape = case.shape(port)
    make = VALUES[case.values]
    if port.kind == "weight":
        return draw_weight(shape, case.find_dtype(port), random, make, sane=case.values != "edges")
    if port.name == "sampling":  # temperature, top_k, top_p, min_p
        return random.choice(SAMPLING, shape[0], replace=shape[0] > len(SAMPLING))
    if port.kind == "index" or port.name in INDEX:
        rule = INDEX.get(port.name)
        if rule is None:
            return random.integers(0, 7, shape).astype(np.int32)
        return rule(shape, case.names, random).astype(np.int32)
    values = make(shape, random)
    return values if port.kind != "cache" else make_cache(values, case.find_cache_dtype(port))


def make_cache(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return a cache f32 [rows, columns] in the array of its type, rounded as a write rounds."""
    kind, columns = find_array_layout(dtype, values.shape[1:])
    cache = np.empty((len(values), *columns), kind)
    with np.errstate(all="ignore"):
        write_cache(cache, np.arange(len(values)), values)
    return cache


# Values. Each maker gives f32 of a shape.

Make = Callable[[tuple[int, ...], np.random.Generator], np.ndarray]

EDGES = np.array(
    [0, -0.0, 1e-45, -1e-45, 1e-38, -1e-42, 87, -87, 88.5, -200, 3e38, -3e38, np.inf, -np.inf, np.nan, 20, 0.5],
    np.float32,
)


def draw_plain(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return normally distributed values."""
    return random.normal(size=shape).astype(np.float32)


def draw_values(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return normally distributed values with zeros of both signs, denormals and large values."""
    array = draw_plain(shape, random)
    flat = array.reshape(-1)
    for value in (0.0, -0.0, 1e-41, -3e-39, 1e4, -2e3):
        flat[random.integers(0, flat.size)] = value
    return array


def draw_edges(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return zeros, denormals, values that exp clamps, infinities and NaN; every second value is normally
    distributed."""
    array = draw_plain(shape, random)
    flat = array.reshape(-1)
    flat[::2] = random.choice(EDGES, flat[::2].size)
    return array


def draw_ties(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return few distinct values, so that most values occur several times."""
    return (np.round(random.normal(size=shape) * 2) / 2).astype(np.float32)


def draw_outliers(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return all magnitudes between 2^-24 and 2^24: sums cancel and round in every step."""
    scale = np.exp2(random.integers(-24, 25, shape))
    return (random.normal(size=shape) * scale).astype(np.float32)


def draw_denormals(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return values around the least normal number, 2^-126, whose products are zeros."""
    return (random.normal(size=shape) * 2.0**-127).astype(np.float32)


def draw_zeros(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return zeros of both signs."""
    return np.where(random.random(shape) < 0.5, np.float32(0.0), np.float32(-0.0))


def draw_rising(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return sorted rows: the largest value is last, after whole tiles."""
    return np.sort(draw_plain(shape, random), axis=-1)


def draw_infinite(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return positive values, one of them infinite. Sums must preserve it, so it must not be multiplied by a 0 of
    padding.
    """
    array = np.abs(draw_plain(shape, random))
    array.reshape(-1)[random.integers(0, array.size)] = np.inf
    return array


VALUES: dict[str, Make] = {
    "mixed": draw_values,
    "plain": draw_plain,
    "edges": draw_edges,
    "ties": draw_ties,
    "outliers": draw_outliers,
    "denormals": draw_denormals,
    "zeros": draw_zeros,
    "rising": draw_rising,
    "infinite": draw_infinite,
}

# Byte offsets of a block's half-precision scales: ggml-common.h's structs. A type that is
# not listed may contain any bytes.
HALF_SCALES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("q4_0", "q5_0", "q8_0", "iq4_nl", "iq4_xs"), (0,)),
    **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2)),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q6_k": (208,),
    "tq1_0": (52,),
    "tq2_0": (64,),
}


def draw_weight(
    shape: tuple[int, ...],
    dtype: str,
    random: np.random.Generator,
    make: Make = draw_values,
    *,
    sane: bool = False,
) -> Weight:
    """Return random blocks. Any bytes form a valid block of a quantised type, whose scales may be infinite or NaN.
    `sane`: scales are finite, so that a NaN cannot hide a wrong bit in one weight."""
    match dtype:
        case "f32":
            return Weight("f32", shape, make(shape, random))
        case "f16":
            with np.errstate(over="ignore"):
                return Weight("f16", shape, make(shape, random).astype(np.float16))
        case "bf16":
            return Weight("bf16", shape, (make(shape, random).view(np.uint32) >> 16).astype(np.uint16))
    elements, size_bytes = find_block(dtype)  # raises KeyError for a name unknown to ggml
    raw = random.integers(0, 256, (*shape[:-1], count_row_bytes(dtype, shape[-1])), dtype=np.uint8)
    if sane and dtype in HALF_SCALES:
        blocks = raw.reshape(-1, size_bytes)
        for offset in HALF_SCALES[dtype]:
            scale = (random.normal(size=len(blocks)) / elements).astype(np.float16)
            blocks[:, offset : offset + 2] = scale.view(np.uint8).reshape(-1, 2)
    return Weight(dtype, shape, raw)


# Indices

Rule = Callable[[tuple[int, ...], Mapping[str, int], np.random.Generator], np.ndarray]


def _make_index_rule(name: str) -> Rule:
    """Return random numbers, distinct if there are enough."""

    def draw_indices(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
        bound, size = names[name], prod(shape)
        drawn = random.permutation(bound)[:size] if size <= bound else random.integers(0, bound, size)
        return drawn.reshape(shape)

    return draw_indices


def _draw_choices(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    """Return random experts. A token's experts are distinct if there are enough."""
    return np.stack([_make_index_rule("E")(shape[1:], names, random) for _ in range(shape[0])])


def _make_sequence(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    """Return the sequence of each token. Tokens of a sequence are consecutive, as in a step."""
    return np.sort(np.arange(shape[0]) % names["S"])


def _draw_pages(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.permutation(prod(shape)).reshape(shape)


def _draw_entries(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.permutation(names["slots"] * names["pages"])[: shape[0]]


def _draw_position(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    """Return distinct positions that include the last one, where out-of-range errors appear."""
    positions = random.permutation(names["ctx"])[: shape[0]]
    if names["ctx"] - 1 not in positions:
        positions[0] = names["ctx"] - 1
    return positions


SAMPLING = np.array(
    [[0, 0, 1, 0], [0.7, 40, 0.9, 0.05], [1, 0, 1, 0], [1.5, 0, 0.8, 0], [0.2, 900, 1, 0.01], [3, 1, 1, 0]],
    np.float32,
)


def _draw_records(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    """Return slot records with different bindings and sampling settings; a fifth has backpressure. No two of them
    count in the same row of token counts.
    """
    records = free_records(shape[0])
    rows = random.permutation(names.get("P", 0))
    for slot, of in enumerate(records):
        settings = SAMPLING[random.integers(0, len(SAMPLING))]
        of["temperature"], of["top_k"], of["top_p"], of["min_p"] = settings
        of["seed"], of["choice"] = random.integers(0, 1 << 64, dtype=np.uint64), random.integers(0, 3)
        of["prompt_len"], of["min_tokens"] = random.integers(0, 5, 2)
        of["stop_count"] = random.integers(0, STOP_IDS + 1)
        of["stop_ids"] = random.integers(0, names.get("V", 7), STOP_IDS)
        if slot < len(rows) and random.random() < 0.8:
            of["flags"] |= SlotFlag.PENALTIES
            of["penalty_row"] = rows[slot]
            of["repetition"], of["presence"], of["frequency"] = random.uniform((0.5, -2, -2), (2, 2, 2))
        if "B" in names and random.random() < 0.8:
            of["flags"] |= SlotFlag.BIAS
            of["bias_row"] = random.integers(0, names["B"])
            of["bias_count"] = random.integers(0, names["biases"] + 1)
    records["epoch"], records["logprobs"] = (
        random.integers(0, 1 << 22, len(records)),
        random.integers(-1, 21, len(records)),
    )
    records["flags"] |= np.where(random.random(len(records)) < 0.2, SlotFlag.BACKPRESSURE, 0).astype(np.uint32)
    seal_records(records)
    return view_dwords(records)


def _draw_token_counts(
    shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator
) -> np.ndarray:
    """Return token counts. Half of the tokens are unseen; the others are in the prompt, in the output, or in
    both.
    """
    counts = random.integers(0, 4, shape) | random.integers(0, 2, shape) << 31
    return np.where(random.random(shape) < 0.5, 0, counts).astype(np.uint32).view(np.int32)


def _draw_ascending(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return np.stack([np.sort(random.permutation(names["V"])[: shape[1]]) for _ in range(shape[0])])


def _draw_bits(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.integers(-(2**31), 2**31, shape)


def _draw_row_or_none(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.integers(-1, names["M"], shape)


def _draw_token(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    """Return tokens of the vocabulary if the opcode has one, and -1 for a row without a token."""
    return random.integers(-1, names["V"], shape) if "V" in names else random.integers(0, 7, shape)


# Meaning of an index, by its port's name.
INDEX: dict[str, Rule] = {
    "token_id": _make_index_rule("V"),
    "position": _draw_position,
    "slot": _make_index_rule("slots"),
    "page_table": _draw_pages,
    "sequence": _make_sequence,
    "source": _make_index_rule("slots"),
    "target": _make_index_rule("slots"),
    "ids": _draw_choices,
    "row": _make_index_rule("T"),
    "entry": _draw_entries,
    "row_slot": _make_index_rule("slots"),
    "record": _draw_records,
    "token_counts": _draw_token_counts,
    "end_id": _make_index_rule("V"),
    "bias_id": _draw_ascending,
    "mask": _draw_bits,
    "mask_row": _draw_row_or_none,
    "token": _draw_token,
}


def _make_disjoint(operands: dict[str, Operand], random: np.random.Generator) -> None:
    """Return sequences that continue from their own rows. Some start from a row that no sequence writes."""
    state, source, target = (operands[name] for name in ("state", "source", "target"))
    assert isinstance(state, np.ndarray) and isinstance(source, np.ndarray) and isinstance(target, np.ndarray)
    source[:] = target
    unwritten = np.setdiff1d(np.arange(len(state)), target)
    if len(unwritten):
        source[random.random(len(source)) < 0.5] = unwritten[0]


READ_CACHES = ("kv_k", "kv_v", "kv_latent", "kv_pe")
READERS = (Op.FLASH_ATTN, Op.FLASH_ATTN_BATCHED, Op.MLA_FLASH_ATTN)


def _hide_unwritten(case: Case, operands: dict[str, Operand]) -> None:
    """Set pages that no token needs to -1 in the table, and cache rows that no query sees to NaN."""
    table, slot, position = (operands[name] for name in ("page_table", "slot", "position"))
    assert isinstance(table, np.ndarray) and isinstance(slot, np.ndarray) and isinstance(position, np.ndarray)
    page_tokens, window = int(case.attrs.get("page_tokens", 16)), int(case.attrs.get("window", 0))
    reads = case.op in READERS
    needed = np.zeros(table.shape, bool)
    seen = np.zeros(table.size * page_tokens, bool)
    for row, last in zip(slot, position, strict=True):
        first = max(0, last - window + 1) if window else 0
        index = np.arange(first if reads else last, last + 1)
        needed[row, index // page_tokens] = True
        seen[table[row, index // page_tokens] * page_tokens + index % page_tokens] = True
    table[~needed] = -1
    for name in READ_CACHES if reads else ():
        cache = operands.get(name)
        if isinstance(cache, np.ndarray):
            hidden = np.ones(len(cache), bool)  # the cache may be larger than the pages
            hidden[: seen.size] = ~seen[: hidden.size]
            cache[hidden] = np.nan if cache.dtype.kind == "f" else 0xFF  # a scale of NaN
