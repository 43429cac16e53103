"""Count the nodes of a model's decode graph and the bytes of weights that a token reads.

The counts come from the model's file, or for a class of models from a synthetic file of its shape.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from zinc_rt.host.devices import DeviceRow
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.isa.target import TARGETS
from zinc_rt.kernels.sets import BinaryKernelSet, find_code_chip, find_kernel_set
from zinc_rt.lower import find_refusal
from zinc_rt.mem.traffic import list_decode_traffic
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.identity import identify_model
from zinc_rt.model.registry import build_model
from zinc_rt.model.sample_graph import SampleForm, add_sampling

# Multiply and add operations a clock of one compute unit, dense 8-bit integers on the matrix unit: the largest
# figure of any type that these kernels use. Makers' specifications: R9700 383 TOPS, RX 7900 XTX 123.
MATRIX_OPS_A_CLOCK = {"gfx12": 2048, "gfx11": 512}


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """`nodes`: sizes, without barriers, of every form of the decode graph: fused or not, sampling or not.
    `weight_bytes` are read for one token; `bits`: of a weight of the file that was counted.
    """

    nodes: tuple[int, ...]
    weight_bytes: int
    bits: float
    layers: int


def count_model(gguf: GGUFFile, *, arch: str, ordering: str, ctx: int, slots: int = 1) -> ModelCounts:
    """Count a model's decode graph for a chip's kernels. Raise UnsupportedError for an unsupported model."""
    limits = SequenceLimits(ctx=ctx, slots=slots)
    model = build_model(gguf, limits, "decode")
    graphs = [model.graph, add_sampling(model.graph, SampleForm(model.vocab, slots, greedy=True))]
    rows = find_kernel_set(find_code_chip(arch)) if arch in TARGETS else None
    if isinstance(rows, BinaryKernelSet) and rows.fuses:
        entries = rows.entries
        graphs += [
            fuse_graph(g, lambda node, of: find_refusal(node, of, entries, ordering) is None) for g in graphs
        ]
    traffic = list_decode_traffic(model.graph, position=0)
    described = identify_model(gguf)
    return ModelCounts(
        tuple(sorted({_count_nodes(graph) for graph in graphs})),
        sum(row.read_bytes for row in traffic if row.kind == "weight"),
        described.bits_a_weight,
        described.layers,
    )


@cache
def count_shape(shape: str, *, arch: str, ordering: str, ctx: int, slots: int = 1) -> ModelCounts:
    """Count a shape of perf/synthetic.py; only the header of its file is written. Raise KeyError for an unknown
    shape.
    """
    from zinc_rt.perf.synthetic import SHAPES, write_synthetic

    with tempfile.TemporaryDirectory(prefix="zinc-rt-shape-") as folder:
        path = write_synthetic(Path(folder) / f"{shape}.gguf", SHAPES[shape], header_only=True)
        return count_model(read_gguf(path), arch=arch, ordering=ordering, ctx=ctx, slots=slots)


def find_peak_operations(row: DeviceRow) -> float:
    """Return the maximum number of operations per second of a board at its specified clock; 0.0 if unknown."""
    of_chip = next((ops for prefix, ops in MATRIX_OPS_A_CLOCK.items() if row.arch.startswith(prefix)), 0)
    return row.compute_units * row.clock_mhz * 1e6 * of_chip


def _count_nodes(graph: OpGraph) -> int:
    return sum(node.op is not Op.BARRIER for node in graph.nodes)
