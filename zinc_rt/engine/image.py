"""Write a model as an image, for hosts in C and other languages (docs/exec-c.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zinc_rt.backends.cpu.image import ImageWriter, MappedWeights, StatePart
from zinc_rt.backends.cpu.library import library_file
from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.backends.exec_library import compile_exec_library
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.resident import Variant
from zinc_rt.engine.runner import StepBlock
from zinc_rt.exec.abi import HEADER, ExecLibrary, make_key
from zinc_rt.host.errors import OutputError, UnsupportedError, error_first_line
from zinc_rt.host.files import write_atomically
from zinc_rt.ir.graph import Stage
from zinc_rt.mem.plan import ARENA, STEP, count_buffer_bytes
from zinc_rt.model.copy_graph import list_caches, list_states
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.sample_graph import LOGITS

IMAGE, LIBRARY, KERNELS = "model.zrx", "libzinc_rt_exec.so", "libzinc_rt_kernels.so"
CHECK_NS = 600 * 10**9
Program = tuple[Stage, tuple[int, int, int]]
"""A stage, and the most tokens, sequences and rows of logits of a replay."""


def list_default_programs(engine: Engine) -> tuple[Program, ...]:
    """Return the programs of an image: a token of one sequence, a token of each, and 16 tokens of a prompt."""
    slots = engine.limits.slots
    decode: list[Program] = [("decode", (count, count, count)) for count in sorted({1, slots})]
    return (*decode, ("prefill", (min(16, engine.limits.step_tokens), 1, 1)))


def write_host_folder(engine: Engine, folder: Path, programs: Sequence[Program] = ()) -> tuple[Path, ...]:
    """Write what a C host of a model needs: the image, the header, the library and the kernels of this CPU. Return
    the files.

    Raise UnsupportedError on another tier than t_cpu_native, for an embedding model, and without a compiler;
    OutputError if the folder cannot be written.
    """
    backend = engine.backend
    if engine.model.pooling:
        raise UnsupportedError(f"{engine.model.architecture}: images are of models that generate text")
    if not isinstance(backend, NativeBackend):
        raise UnsupportedError(
            f"images have programs of t_cpu_native, not of {backend.spec.tier}",
            next="open it with --tier t_cpu_native",
        )
    contents = {
        IMAGE: build_image(engine, programs or list_default_programs(engine)),
        HEADER.name: HEADER.read_bytes(),
        LIBRARY: compile_exec_library(),
        KERNELS: backend.library.content,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot create {folder}: {error_first_line(error)}", next="name another folder"
        ) from error
    for name, content in contents.items():
        write_atomically(folder / name, partial(_write_content, content))
    return tuple(folder / name for name in contents)


def _write_content(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def build_image(engine: Engine, programs: Sequence[Program]) -> bytes:
    """Return an image of an engine's model on t_cpu_native. Its graphs are the stages. It has every slot, page and
    state row of the engine."""
    limits, variants = engine.limits, engine.variants
    built = [(stage, key, variants.get(stage, key)) for stage, key in programs]
    writer = ImageWriter(f"{engine.ordering}, {variants.delta_form}", map_weights(engine.model.gguf))
    sizes: dict[str, int] = {}
    for number, (_, _, variant) in enumerate(built):
        for name, buffer in variant.buffers.items():
            shared = _name_buffer(name, number)
            sizes[shared] = max(sizes.get(shared, 0), buffer.size_bytes)
    buffers = {name: writer.add_buffer(name, size) for name, size in sizes.items()}
    for stage in dict.fromkeys(stage for stage, _, _ in built):
        writer.add_graph(stage)
        for number, (of, key, variant) in enumerate(built):
            if of == stage:
                places = {name: buffers[_name_buffer(name, number)] for name in variant.buffers}
                writer.add_program(make_key(*key), variant.program, variants.resident.weights, places)
    _add_groups(writer, engine, built[0][2], buffers)
    about = {
        "vocab": engine.model.vocab,
        "ctx": limits.ctx,
        "slots": limits.slots,
        "page_tokens": limits.page_tokens,
    }
    for name, value in about.items():
        writer.add_property(name, value)
    return writer.to_bytes()


def map_weights(gguf: GGUFFile) -> list[MappedWeights]:
    """Return the mapped files of a model that have weights."""
    files = []
    for part in filter(lambda part: part.tensors, gguf.parts):
        name, offset = min(part.tensors.items(), key=lambda item: item[1])
        data = gguf.tensors[name].data
        whole = np.ndarray(part.size_bytes, np.uint8, _find_mapping(data))
        files.append(MappedWeights(part.path, whole, offset))
    return files


def _find_mapping(array: np.ndarray) -> memoryview:
    """Return the whole of the memory that an array is a view of."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return memoryview(base)


def _name_buffer(allocation: str, number: int) -> str:
    """Return the name of a program's allocation in the image. State, tables and activations are shared."""
    role = allocation.partition("/")[0]
    return allocation if role in ("state", "table") or allocation == ARENA else f"{allocation}@{number}"


def _add_groups(writer: ImageWriter, engine: Engine, variant: Variant, buffers: dict[str, int]) -> None:
    graph, plan, limits = variant.graph, variant.plan, engine.limits
    tables = sorted(spec.name for spec in graph.by_role("table"))
    parts = {
        f"pages_{number}": (list_caches(graph, table), limits.page_tokens) for number, table in enumerate(tables)
    }
    parts["state_rows"] = list_states(graph), 1
    for group, (names, rows) in parts.items():
        members, units = [], 0
        for name in names:
            placement, spec = plan.placements[name], graph.buffers[name]
            units = int(spec.shape[0]) // rows
            size = count_buffer_bytes(spec, {}) // units
            members.append(StatePart(buffers[placement.allocation], placement.offset_bytes, size))
        if members:
            writer.add_group(group, units, members)
            writer.add_property(f"{group}.units", units)


def _convert_block(filled: StepBlock, variant: Variant) -> bytes:
    """Return the content of a step block in the layout of another capacity that holds it."""
    block = StepBlock(variant)
    for name, view in block.views.items():
        source = filled.views[name].reshape(-1)[: view.size]
        view.reshape(-1)[: source.size] = source
    return block.raw.tobytes()


def count_wrong_logits(engine: Engine, folder: Path) -> int:
    """Compute a token and a prompt with the engine and with the folder's library and image, which has the default
    programs. Return the number of logits whose bits differ."""
    with library_file((folder / LIBRARY).read_bytes()) as path:
        library = ExecLibrary(path)
    context = library.call("context_create", {"kernels": folder / KERNELS})
    image = library.call("image_open", context, folder / IMAGE, None)
    stream = library.call("stream_create", context, "check", 0)
    wrong = 0
    for number, (stage, key) in enumerate(list_default_programs(engine)):
        if key[1] == 1:
            sequence = engine.open()
            tokens = [token % engine.model.vocab for token in range(min(key[0], engine.limits.ctx))]
            expected = engine.extend(sequence, tokens, rows="last")[0].view(np.uint32)
            ran = engine.variants.find_fitting(stage, len(tokens), 1, 1).blocks[0]
            block = _convert_block(ran, engine.variants.get(stage, key))
            graph, step = library.call("image_graph", image, stage), _name_buffer(STEP, number)
            library.call("buffer_write", library.call("image_buffer", image, step), 0, block, len(block))
            library.call("graph_replay", graph, make_key(*key), stream)
            library.call("stream_synchronize", stream, CHECK_NS)
            port, logits = library.call("graph_port", graph, make_key(*key), LOGITS), bytearray(expected.nbytes)
            library.call("buffer_read", port.buffer, port.offset_bytes, logits, len(logits))
            wrong += int((np.frombuffer(logits, np.uint32) != expected).sum())
            engine.release(sequence)
    library.call("context_destroy", context)
    return wrong
