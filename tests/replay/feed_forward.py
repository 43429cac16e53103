"""A log of one feed-forward block of an embedded model, weights inside: five nodes, one step, small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.ir.graph import ABSENT, OpGraph
from zinc_rt.ir.serial import to_bytes
from zinc_rt.ir.verify import verify_graph
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.trace import records
from zinc_rt.trace.recorder import COUNTS
from zinc_rt.trace.weights import weight_bytes
from zinc_rt.trace.writer import LogWriter

NODES = ("ffn_norm-0", "ffn_gate-0", "ffn_up-0", "ffn_swiglu-0", "ffn_out-0")
INPUT, OUTPUT = "act.ffn_inp[0]", "act.ffn_out[0]"
KEY, COUNT = (16, 1, 16), (5, 1, 5, 1)


def feed_forward_log(path: Path) -> Path:
    """Nothing ran, so the log has the step's inputs but no outputs to compare with."""
    model = build_model(read_gguf(FOLDER / "qwen3-q.gguf"), SequenceLimits(32), "prefill")
    nodes = tuple(node for node in model.graph.nodes if node.label in NODES)
    assert tuple(node.label for node in nodes) == NODES
    buffers = {COUNTS: model.graph.buffers[COUNTS]}
    for node in nodes:
        for name in (*node.inputs, *node.outputs):
            if name != ABSENT:
                buffers[name] = model.graph.buffers[name]
    buffers[INPUT] = replace(buffers[INPUT], role="step")
    buffers[OUTPUT] = replace(buffers[OUTPUT], role="output")
    graph = OpGraph("feed-forward", "prefill", MappingProxyType(buffers), nodes)
    verify_graph(graph)
    argument = np.random.default_rng(5).standard_normal((COUNT[0], 256)).astype(np.float32)
    header = {
        "level": "inputs", "tier": "t_cpu", "ordering": "canonical-1", "ctx": 32,
        "device": {"name": "a card", "arch": "gfx1201", "kernel": "7.0.0", "firmware": "MEC 2680"},
    }  # fmt: skip
    with LogWriter(path, header) as log:
        for spec in graph.by_role("weight"):
            weight = model.weights[spec.name]
            blob = log.write_blob(weight_bytes(weight).data)
            log.write(records.WeightRecord(spec.name, weight.dtype, weight.shape, blob, blob))
        log.write(records.GraphCreated(0, graph.name, graph.stage, log.write_blob(to_bytes(graph))))
        log.write(records.VariantAdded(0, KEY))
        for name, content in ((COUNTS, np.array(COUNT, np.int32).tobytes()), (INPUT, argument.tobytes())):
            log.write(records.Wrote(0, KEY, name, 0, len(content), blob=log.write_blob(content)))
        log.write(records.Replayed(0, 0, KEY, "main", COUNT, 0.0))
    return path
