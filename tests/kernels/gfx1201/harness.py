"""Runs one node through a kernel table of gfx1201 on a bare device and holds every output against the oracle.

    check(Op.MATMUL, x, weight(values, "q8_0"), None, None)            # operands in port order, None: absent
    check(Op.RMS_NORM, x, w, eps=1e-6, size=64, capacity={"tokens": 8})
    check(Op.ADD, a, b, kernels=kernel_set("radv"))                    # another set that runs on the chip

Operands are NumPy arrays (f32, i32) and Weights; missing last ones are absent. Counts of tokens, sequences and
rows come from their shapes. `capacity` makes the buffers longer than that, NaN and -1 behind the counted part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import zinc_rt.kernels.gfx1201
from zinc_rt.ir.dtypes import find_block
from zinc_rt.ir.graph import ABSENT, SYMBOLS, Builder, Node, OpGraph
from zinc_rt.ir.op import OPS, Op, Port
from zinc_rt.isa import decode, target_of
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import COUNTS, Launch, Ref, Sync, Temp
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.kernels.sets import BinaryKernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import read_zrt
from zinc_rt.lower.lower import choose_entry
from zinc_rt.sim.shader.run.engine_device import EngineDevice

ORDERING = "canonical-1"
COUNTS_DWORDS = 8
SYMBOL_OF_DIM = {"T": "tokens", "S": "sequences", "L": "rows", "E": "entries"}  # how ir/op.py writes them first
INEXACT = re.compile("v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos)_")
GARBAGE = 0xFF  # bytes of NaN, and of index -1

Operand = np.ndarray | Weight | None


class Device(Protocol):
    """The common interface of EngineDevice and the NumPy model."""

    def place(self, array: np.ndarray, name: str = "", *, initialised: bool = True, write: bool = True) -> int: ...

    def run(self, code: bytes, **how: Any) -> list[Any]: ...


@dataclass
class Bench:
    """A node with its operands in a device's memory."""

    device: Device
    node: Node
    graph: OpGraph
    capacity: dict[str, int]
    counts: dict[str, int]
    kernels: BinaryKernelSet = KERNELS
    ordering: str = ORDERING
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # live: what kernels wrote shows here
    addresses: dict[str, int] = field(default_factory=dict)

    def place(self, name: str, array: np.ndarray, *, initialised: bool = True, write: bool = True) -> None:
        if name not in self.addresses:
            self.arrays[name] = array
            self.addresses[name] = self.device.place(array, name, initialised=initialised, write=write)

    def address(self, buffer: Ref | Temp) -> int:
        if isinstance(buffer, Ref):
            return self.addresses[buffer.name] + buffer.offset_bytes
        name = f"temp {buffer.name}"
        content = 0 if buffer.zeroed else GARBAGE
        self.place(name, np.full(buffer.size_bytes, content, np.uint8), initialised=buffer.zeroed)
        assert self.arrays[name].nbytes == buffer.size_bytes, f"{buffer.name} has two sizes"
        return self.addresses[name]

    def dispatch(self, launch: Launch) -> list[Any]:
        """Run the node and return the device's findings."""
        kernel = self.kernels.load(launch.kernel)
        assert len(launch.buffers) == kernel.buffers, f"{launch.kernel} declares {kernel.buffers} buffers"
        assert 4 * len(launch.constants) == kernel.constant_bytes, (
            f"{launch.kernel}: {kernel.constant_bytes // 4} constants"
        )
        block = launch.pack_kernarg(self.address)
        name = f"arguments of {launch.kernel} {block.hex()}"
        self.place(name, np.frombuffer(block, np.uint8), write=False)
        va = self.addresses[name]
        result = self.device.run(
            kernel.image,
            groups=tuple(self.counts[dim] if isinstance(dim, str) else dim for dim in launch.grid),
            threads=kernel.workgroup,
            wave=kernel.wave,
            user_data=(va & 0xFFFFFFFF, va >> 32),
            lds_bytes=kernel.lds_bytes,
            scratch_bytes=kernel.scratch_bytes,
            vgprs=kernel.vgprs,
            sgprs=kernel.sgprs,
            entry=kernel.entry_offset,
            name=kernel.name,
        )
        return [item for item in result if not is_remark(item.rule, kernel.compiler)]


def bench(
    op: Op,
    *operands: Operand,
    capacity: Mapping[str, int] | None = None,
    device: Device | None = None,
    kernels: BinaryKernelSet = KERNELS,
    ordering: str = ORDERING,
    outputs: tuple[np.ndarray, ...] = (),
    **attrs: Any,
) -> Bench:
    """Create the node of `op` with placed `operands`; `outputs` has the shapes of outputs that are not in
    place.
    """
    spec = OPS[op]
    argument = {port.name: operand for port, operand in zip(spec.inputs, operands, strict=False)}
    counts = dict.fromkeys(SYMBOLS, 0)
    for port in spec.inputs:
        operand = argument.get(port.name)
        if isinstance(operand, np.ndarray):
            counts |= {
                SYMBOL_OF_DIM[d]: n
                for d, n in zip(port.shape[:1], operand.shape, strict=False)
                if d in SYMBOL_OF_DIM
            }
    if not counts["sequences"] and isinstance(numbers := argument.get("sequence"), np.ndarray):
        counts["sequences"] = int(numbers.max()) + 1  # of cache rows: no operand is that long
    room = {symbol: max((capacity or {}).get(symbol, 0), count, 1) for symbol, count in counts.items()}
    builder, storage = Builder("bench"), {}
    inputs = []
    for port in spec.inputs:
        operand = argument.get(port.name)
        if operand is None:
            assert port.optional, f"{op.name} needs {port.name}"
            inputs.append(ABSENT)
        elif isinstance(operand, Weight):
            storage[port.name] = (kernels.pack(operand), False)
            inputs.append(builder.buffer(port.name, operand.shape, operand.dtype, "weight"))
        else:
            storage[port.name] = (pad_to_capacity(operand, port, room), True)
            inputs.append(
                builder.buffer(port.name, symbolic_dims(operand, port), dtype_name(operand), "activation")
            )
    fresh = iter(outputs)
    names = []
    for port in spec.outputs:
        if port.inplace:
            array, name = argument[port.inplace], port.name
            assert isinstance(array, np.ndarray)
            storage[name] = storage[port.inplace]
        else:
            array, name = next(fresh, None), f"{port.name}_made" if port.name in argument else port.name
            if array is None:  # an optional one at the end
                break
            storage[name] = (pad_to_capacity(np.full_like(array, 0), port, room, blank=True), True)
        names.append(builder.buffer(name, symbolic_dims(array, port), dtype_name(array), "activation"))
    builder.node(op, tuple(inputs), tuple(names), **attrs)
    graph = builder.build()
    bench = Bench(device or EngineDevice(level="full"), graph.nodes[0], graph, room, counts, kernels, ordering)
    shared: dict[int, str] = {}
    for name, (array, write) in storage.items():
        first = shared.setdefault(id(array), name)
        if first == name:
            bench.place(name, array, initialised=name in inputs, write=write)
        else:  # in place: the input's own storage
            bench.arrays[name], bench.addresses[name] = array, bench.addresses[first]
    block = [counts[symbol] for symbol in SYMBOLS]
    bench.place(COUNTS, np.array([*block, *(0,) * (COUNTS_DWORDS - len(block))], np.int32), write=False)
    return bench


def run(bench: Bench) -> None:
    """Run every launch of the node; launches without a SYNC between them run in reverse order. No finding may
    come.
    """
    candidates = [entry for entry in bench.kernels.entries if entry.op is bench.node.op]
    entry = choose_entry(bench.node, bench.graph, candidates, bench.ordering)
    assert not isinstance(entry, str), f"{bench.node!r} is refused: {entry}"
    together: list[Launch] = []
    for step in (*entry.code(bench.node, bench.graph, bench.capacity), Sync()):
        if isinstance(step, Launch):
            together.append(step)
            continue
        for launch in reversed(together):
            findings = bench.dispatch(launch)
            assert not findings, "\n".join(str(getattr(f, "sentence", f)) for f in findings[:8])
        together.clear()


def check_op(
    op: Op,
    *operands: Operand,
    capacity: Mapping[str, int] | None = None,
    device: Device | None = None,
    kernels: BinaryKernelSet = KERNELS,
    ordering: str = ORDERING,
    **attrs: Any,
) -> tuple[np.ndarray, ...]:
    """Run the node and assert each output's bits; return the valid part of each output, in port order."""
    spec = OPS[op]
    mine = tuple(o.copy() if isinstance(o, np.ndarray) else o for o in operands)
    absent = (None,) * (len(spec.inputs) - len(mine))
    with np.errstate(all="ignore"):
        result = FUNCTIONS[op](arithmetic(ordering), *mine, *absent, **attrs)
    fresh = result if isinstance(result, tuple) else () if result is None else (result,)
    output = bench(
        op, *operands, capacity=capacity, device=device, kernels=kernels, ordering=ordering, outputs=fresh, **attrs
    )
    before = {name: array.copy() for name, array in output.arrays.items()}
    run(output)
    wanted, argument, got = iter(fresh), dict(zip((p.name for p in spec.inputs), mine, strict=False)), []
    for port, name in zip(spec.outputs, output.node.outputs, strict=False):
        want = argument[port.inplace] if port.inplace else next(wanted)
        assert isinstance(want, np.ndarray)
        array = output.arrays[name]
        counted = tuple(slice(0, size) for size in want.shape)
        assert_same_bits(array[counted], want, f"{op.name} {port.name}")
        if not port.inplace:
            untouched = np.ones(array.shape, bool)
            untouched[counted] = False
            assert array[untouched].tobytes() == before[name][untouched].tobytes(), (
                f"{name}: wrote past the counts"
            )
        got.append(array[counted])
    for name, array in output.arrays.items():
        if name in output.node.inputs and output.addresses[name] not in {
            output.addresses[o] for o in output.node.outputs
        }:
            assert array.tobytes() == before[name].tobytes(), f"input {name} changed"
    return tuple(got)


def assert_same_bits(got: np.ndarray, want: np.ndarray, name: str) -> None:
    """Assert equality bit for bit; a NaN equals any NaN."""
    want = np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype, (
        f"{name}: {got.dtype}{got.shape}, {want.dtype}{want.shape}"
    )
    words = f"u{want.itemsize}"
    equal = np.ascontiguousarray(got).view(words) == np.ascontiguousarray(want).view(words)
    if want.dtype.kind == "f":
        equal |= np.isnan(got) & np.isnan(want)
    if not equal.all():
        first = tuple(map(int, np.argwhere(~equal)[0]))
        raise AssertionError(
            f"{name}: {np.count_nonzero(~equal)} of {equal.size} differ, first at {first}: got {got[first]!r}, "
            f"expected {want[first]!r}"
        )


@cache
def inexact_instructions() -> dict[str, tuple[str, ...]]:
    """Return the instructions that are only accurate to 1 ULP, in order, for each built kernel that has any."""
    result = {}
    for path in sorted((Path(zinc_rt.kernels.gfx1201.__file__).parent / "built").glob("*.zrt")):
        code, pc, names = read_zrt(path.read_bytes(), path.name).code, 0, []
        while pc < len(code):
            instruction = decode(code, pc, target_of("gfx1201"))
            if instruction is not None and INEXACT.match(instruction.mnemonic):
                names.append(instruction.mnemonic.removesuffix("_e32").removesuffix("_e64"))
            pc += 4 if instruction is None else instruction.size_bytes  # None: what pads the code
        if names:
            result[path.stem] = tuple(names)
    return result


def pad_to_capacity(
    array: np.ndarray, port: Port, capacity: Mapping[str, int], *, blank: bool = False
) -> np.ndarray:
    """Return a copy at full capacity, with garbage outside the valid part (everywhere if `blank`)."""
    shape = tuple(
        capacity[SYMBOL_OF_DIM[port.shape[0]]] if i == 0 and port.shape[0] in SYMBOL_OF_DIM else size
        for i, size in enumerate(array.shape)
    )
    full = np.full(prod(shape) * array.itemsize, GARBAGE, np.uint8).view(array.dtype).reshape(shape)
    if not blank:
        full[tuple(slice(0, size) for size in array.shape)] = array
    return full


def symbolic_dims(array: np.ndarray, port: Port) -> tuple[int | str, ...]:
    shape = array.shape
    if array.dtype == np.uint8:  # rows of blocks
        elements, size_bytes = find_block(dtype_name(array))
        shape = *shape[:-1], shape[-1] // size_bytes * elements
    return tuple(
        SYMBOL_OF_DIM[port.shape[0]] if i == 0 and port.shape[0] in SYMBOL_OF_DIM else size
        for i, size in enumerate(shape)
    )


def dtype_name(array: np.ndarray) -> str:
    return {"float32": "f32", "int32": "i32", "float16": "f16", "uint8": "q8_0"}[array.dtype.name]
