"""Find where an engine's arithmetic goes wrong: compare its layers and nodes with the reference.

llama-server is started with a preloaded library (golden/llama_values.c), which writes values of its graph. The
reference computes each layer from the engine's own output of the layer before, so that an error is reported only
where it begins. The limit is a multiple of what quantised activations change in the reference at the same node.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.engine.engine import Engine
from zinc_rt.engine.opening import ModelOptions, make_engine_opener
from zinc_rt.golden.capture import CapturedRun, Selection, capture_run
from zinc_rt.golden.llama_cpp.graph_capture import view_tensor
from zinc_rt.golden.llama_cpp.importing import NodeValue, find_occurrence, list_expected_values
from zinc_rt.host.errors import NothingRan
from zinc_rt.kernels.native.types import read_q8_blocks
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sim.serve.program import build_library
from zinc_rt.validate.judge.engine_client import EngineClient
from zinc_rt.validate.judge.engines import EngineProgram, start_engine
from zinc_rt.validate.judge.judgement import EngineJudgement
from zinc_rt.validate.judge.oracle import QUANTISED_ACTIVATIONS

RECORD = struct.Struct("<64s32sii4q4QQ")  # struct record of golden/llama_values.c
MARGIN, FLOOR = 4.0, 4e-3  # times the error that quantised activations cause; relative to the RMS of the value
# For models with weights that canonical-1-q8 does not cover. llama-server b10434 with SmolLM2-135M Q4_1 has 0.028.
UNMEASURED_FLOOR = 0.1
NOT_STARTED = "this command did not start the engine"
DUMPER = "zinc-rt golden dumper llama-cpp: build it with this llama.cpp, then zinc-rt compare --llama-dir DIR"
Occurrences = dict[str, list[tuple[str, np.ndarray]]]  # by name: ggml's operation and value, in graph order


@dataclass(frozen=True, slots=True)
class ValueDistance:
    """How far a value of the engine, [T, ...], is from the reference's. `error` and `quantised`, the error of the
    reference with quantised activations, are RMS relative to the value, for a layer to what it adds. `token`,
    `element`: where the difference is largest; `got`, `want`: the values there.
    """

    name: str
    error: float
    quantised: float
    token: int
    element: int
    got: float
    want: float
    floor: float

    @property
    def limit(self) -> float:
        return MARGIN * self.quantised + self.floor

    @property
    def is_wrong(self) -> bool:
        return not self.error <= self.limit

    def describe(self) -> str:
        return (
            f"{self.name}: RMS error {self.error:.2g}, limit {self.limit:.2g}; largest at token {self.token}, "
            f"element {self.element}: {self.got:.6g}, expected {self.want:.6g}"
        )


@dataclass(slots=True)
class LayerComparison:
    """The values of one request. `tokens`: its prompt. `layers`: one for each layer and the end of the graph.
    `nodes`: those of the first wrong layer, or of the first one. `problem`: why there are none.
    `next`: what to do then.
    """

    tokens: tuple[int, ...] = ()
    layers: list[ValueDistance] = field(default_factory=list)
    nodes: list[ValueDistance] = field(default_factory=list)
    problem: str = ""
    next: str = ""

    @property
    def first(self) -> ValueDistance | None:
        """Return the first wrong node, the first wrong layer if no node of it is wrong, or None."""
        return next((value for value in (*self.nodes, *self.layers) if value.is_wrong), None)

    def format_lines(self) -> Iterator[str]:
        if self.problem:
            yield f"layers    not compared: {self.problem}"
            yield f"          next: {self.next}"
            return
        layer, node = (next((v for v in some if v.is_wrong), None) for some in (self.layers, self.nodes))
        asked = f"request of {len(self.tokens)} tokens, sent alone"
        if layer is None:
            yield f"layers    {len(self.layers)} outputs of layers are within their limits ({asked})"
        else:
            yield f"layers    first wrong: {layer.describe()} ({asked})"
        if node is not None:
            yield f"node      first wrong: {node.describe()}"
        elif self.nodes:
            layer_number = self.nodes[0].name.rpartition("-")[2]
            yield f"node      {len(self.nodes)} nodes of layer {layer_number} are within theirs"

    def as_dict(self) -> dict[str, Any]:
        values = {"layers": [asdict(v) for v in self.layers], "nodes": [asdict(v) for v in self.nodes]}
        first = "" if self.first is None else self.first.name
        return {"tokens": list(self.tokens), "first": first, **values, "text": list(self.format_lines())}


def choose_prompt(judgement: EngineJudgement) -> tuple[int, ...]:
    """Return the tokens before the first wrong one of the shortest request with a wrong token or distribution, or
    the text with which the divergence was measured. () if wrong values cannot explain the findings.
    """
    findings = [finding for finding in judgement.findings if finding.kind not in ("template", "tokenizer")]
    prompts = [
        (*fault.question.prompt, *fault.tokens)[: fault.position]
        for finding in findings
        for fault in finding.faults
        if fault.position is not None and fault.kind in ("token", "logprob")
    ]
    is_numeric = any(finding.kind in ("numerics", "position") for finding in findings)
    return min(prompts, key=len, default=judgement.text if is_numeric else ())


def compare_layers(
    program: EngineProgram, model: str, words: Sequence[str], tokens: Sequence[int], *, slots: int, ctx: int
) -> LayerComparison:
    """Start the engine once more and compare the values of a request for the token after `tokens`. Raises as
    `start_engine`. An engine whose values cannot be read has a `problem`.
    """
    comparison = LayerComparison(tuple(tokens))
    if not program.has_values:
        comparison.problem = f"the values of {program.name} are not read by this command"
        comparison.next = f"zinc-rt validate --model {model} --tokens {','.join(map(str, tokens))}"
        return comparison
    try:
        library = build_library([Path(str(files("zinc_rt.golden").joinpath("llama_values.c")))])
    except NothingRan as error:
        comparison.problem, comparison.next = str(error), error.next or DUMPER
        return comparison
    with tempfile.TemporaryDirectory(prefix="zinc-rt-") as name:
        folder = Path(name)
        preloaded = " ".join((str(library), os.environ.get("LD_PRELOAD", ""))).strip()
        environment = {"LD_PRELOAD": preloaded, "ZINC_LLAMA_VALUES": name}
        with start_engine(program, model, words, slots=slots, ctx=ctx, environment=environment) as (url, _):
            client = EngineClient(url)
            client.detect_features()
            seen = _ask_values(client, folder, tokens, ["l_out-*", "result_norm", "result_output"])
            if "l_out-0" not in seen:
                comparison.problem = f"{program.name} does not use a shared libggml with LD_PRELOAD"
                comparison.next = DUMPER
                return comparison
            comparison.layers = _compare_outputs(model, tokens, seen)
            wrong = next((value.name for value in comparison.layers if value.is_wrong), "l_out-0")
            if wrong.startswith("l_out-"):  # small errors of positions show in the nodes of every layer only
                layer = int(wrong.removeprefix("l_out-"))
                inside = _ask_values(client, folder, tokens, ["l_out-0", f"*-{layer}"])
                comparison.nodes = _compare_nodes(model, tokens, layer, seen, inside)
    return comparison


def _ask_values(client: EngineClient, folder: Path, tokens: Sequence[int], patterns: Sequence[str]) -> Occurrences:
    """Send a prompt and return the values of the engine's graph whose names match."""
    written = folder / "values"
    written.unlink(missing_ok=True)
    (folder / "new").write_text("\n".join(patterns) + "\n")
    (folder / "new").replace(folder / "names")
    body = {"prompt": list(tokens), "max_tokens": 1, "temperature": 0.0, "cache_prompt": False}
    client.complete(body)
    (folder / "names").unlink()
    return join_passes(read_values(written.read_bytes()), len(tokens)) if written.is_file() else {}


def read_values(data: bytes) -> Occurrences:
    """Return the values of a file of golden/llama_values.c: f32 or i32, the dimensions in reverse, as in a golden:
    [T, D], or more dimensions.
    """
    seen: Occurrences = defaultdict(list)
    offset = 0
    while offset + RECORD.size <= len(data):
        name, op, kind, _, *rest = RECORD.unpack_from(data, offset)
        offset, size = offset + RECORD.size, rest[8]
        raw = np.frombuffer(data, np.uint8, min(size, len(data) - offset), offset)
        offset += size
        if 0 < size == len(raw):
            words = [text.partition(b"\0")[0].decode() for text in (name, op)]
            seen[words[0]].append((words[1], view_tensor(raw, kind, rest[:4], rest[4:8]).copy()))
    return dict(seen)


def join_passes(seen: Occurrences, tokens: int) -> Occurrences:
    """Join the values of a prompt that the engine computed in several passes. `tokens`: of the prompt."""
    passes = len(seen.get("l_out-0", ()))
    if passes < 2:
        return seen
    joined: Occurrences = {}
    for name, values in seen.items():
        by_op: dict[str, list[np.ndarray]] = defaultdict(list)
        for op, value in values:
            by_op[op].append(value)
        joined[name] = []
        for op, parts in by_op.items():
            several = len(parts) // passes if len(parts) % passes == 0 else 1
            joined[name] += [(op, np.concatenate(parts[first::several])[:tokens]) for first in range(several)]
    return joined


def _compare_outputs(model: str, tokens: Sequence[int], seen: Occurrences) -> list[ValueDistance]:
    """Compare the output of each layer, each computed from the engine's output of the layer before, and the end of
    the graph.
    """
    given, floor = _get_layer_outputs(seen, len(tokens)), choose_floor(model)
    patterns = ("l_out-*", "result_norm")
    right = _capture(model, tokens, patterns, "canonical-1", given)
    quantised = _capture(model, tokens, patterns, QUANTISED_ACTIVATIONS, given)
    compared = []
    for layer, want in sorted(right.layers.items()):
        if value := seen.get(f"l_out-{layer}"):
            base = given.get(f"l_out-{layer - 1}", np.zeros_like(want))
            compared.append(_measure(f"l_out-{layer}", value[-1][1], want, quantised.layers[layer], floor, base))
    ends = {"result_norm": lambda run: run.values.get("result_norm"), "result_output": lambda run: run.logits}
    for name, get in ends.items():
        want, other = get(right), get(quantised)
        if want is not None and other is not None and name in seen:
            compared.append(_measure(name, seen[name][-1][1], want, other, floor))
    return compared


def _get_layer_outputs(seen: Occurrences, tokens: int) -> dict[str, np.ndarray]:
    """Return the engine's output of each layer. The last layer has only the tokens that were asked for."""
    outputs = {name: values[-1][1] for name, values in seen.items() if name.startswith("l_out-")}
    return {name: value for name, value in outputs.items() if value.ndim == 2 and len(value) == tokens}


def _compare_nodes(
    model: str, tokens: Sequence[int], layer: int, outputs: Occurrences, inside: Occurrences
) -> list[ValueDistance]:
    """Compare the nodes of one layer, in graph order."""
    before, floor = f"l_out-{layer - 1}", choose_floor(model)
    given = {name: value for name, value in _get_layer_outputs(outputs, len(tokens)).items() if name == before}
    patterns = (f"*-{layer}",)
    right = _capture(model, tokens, patterns, "canonical-1", given)
    quantised = _capture(model, tokens, patterns, QUANTISED_ACTIVATIONS, given)
    known = {value.name: value for value in list_expected_values(read_gguf(Path(model)), max(256, len(tokens)))}
    compared = []
    for name, want in right.values.items():
        expected = known.get(name) or NodeValue(name, name, "", want[0].size)
        got = find_occurrence(expected, inside.get(expected.label, ()))
        if want.dtype == np.float32 and got is not None and len(got) <= len(want) and got[0].size == want[0].size:
            compared.append(_measure(name, got, want, quantised.values[name], floor))
    return compared


def _capture(
    model: str, tokens: Sequence[int], patterns: tuple[str, ...], ordering: str, given: Mapping[str, np.ndarray]
) -> CapturedRun:
    with _open_reference(model, len(tokens), ordering) as engine:
        return capture_run(engine, tokens, Selection(patterns), inject=given)


@contextmanager
def _open_reference(model: str, tokens: int, ordering: str) -> Iterator[Engine]:
    options = ModelOptions(device="cpu", slots=1, ctx=tokens + 16, ordering=ordering)
    opener = make_engine_opener(model, options)
    engine = replace(opener, limits=replace(opener.limits, rows=tokens))()
    try:
        yield engine
    finally:
        engine.close()


def _measure(
    name: str,
    got: np.ndarray,
    want: np.ndarray,
    quantised: np.ndarray,
    floor: float,
    base: np.ndarray | None = None,
) -> ValueDistance:
    """Compare the last tokens of a value, as many as the engine has."""
    rows = len(got)
    want, other = (value[-rows:].reshape(rows, -1).astype(np.float64) for value in (want, quantised))
    added = want if base is None else want - base[-rows:].reshape(rows, -1)
    difference = got.reshape(rows, -1) - want
    scale = float(np.sqrt(np.mean(np.square(added)))) or 1.0
    largest = np.where(np.isfinite(difference), np.abs(difference), np.inf)
    row, element = divmod(int(largest.argmax()), want.shape[1])
    return ValueDistance(
        name,
        float(np.sqrt(np.mean(np.square(difference)))) / scale,
        float(np.sqrt(np.mean(np.square(other - want)))) / scale,
        len(quantised) - rows + row,
        element,
        float(got.reshape(rows, -1)[row, element]),
        float(want[row, element]),
        floor,
    )


def choose_floor(model: str) -> float:
    """Return the error that is no finding even if quantised activations cause none in the reference."""
    dtypes = {tensor.dtype for tensor in read_gguf(Path(model)).tensors.values()}
    return FLOOR if dtypes <= {"f32", "f16", "bf16", *read_q8_blocks()} else UNMEASURED_FLOOR
