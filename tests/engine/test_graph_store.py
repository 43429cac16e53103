"""Graphs and plans kept from start to start: a warm start submits what a cold one did, and plans nothing.

What lies in the folder is believed only where it is whole, this user's alone, and of exactly this model, code and
kernels; whatever happens to it, the next start has the same program.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Counts
from test_ownership import Opened, opened
from test_tier_identity import MODELS

from zinc_rt.engine import graph_store, resident, variants
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.graph_store import GraphStore
from zinc_rt.engine.resident import Variant, capacity_of
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.object_cache import MAGIC, ObjectCache
from zinc_rt.host.settings import read_settings
from zinc_rt.ir import serial
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.passes.fuse import fuse
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.lower import PlannedGraph, dispatches_of, flat_plan, lower, planned, refusal
from zinc_rt.mem.plan import linger_of, plan_memory
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.pm4.decode import decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import DispatchIndirect, SetShReg
from zinc_rt.pm4.registers import Sh

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
EMBEDDED_MODELS = ("qwen3-q", "qwen35moe-q", "gemma4-q", "gemma4moe-q")


def fused(gguf: GGUFFile) -> OpGraph:
    """A model's decode graph as gfx1201 runs it."""
    graph = build_model(gguf, SequenceLimits(ctx=64, slots=2), "decode").graph
    return fuse(graph, lambda node, within: refusal(node, within, KERNELS.entries, "canonical-1") is None)


def program_of(graph: OpGraph, key: tuple[int, ...] = (16, 2, 1)) -> PlannedGraph:
    """Its program, without a device."""
    plan = plan_memory(graph, capacity=capacity_of(key), linger=linger_of(capacity_of(key)))
    lowered = lower(graph, KERNELS.entries, plan, ordering="canonical-1", tier="t1")
    return planned(replace(lowered, merging=KERNELS.merging))


def digest_of(program: PlannedGraph) -> bytes:
    return hashlib.sha256(serial.to_bytes(program.graph)).digest()


def tiny(name: str, folder: Path) -> Path:
    shipped = FOLDER / f"{name}.gguf"
    if shipped.exists():
        return shipped
    architecture, _, kind = name.partition("-")
    write_tiny(folder / f"{name}.gguf", architecture, quant=kind)
    return folder / f"{name}.gguf"


def test_program_round_trips(tmp_path: Path, slow_counts: Counts) -> None:
    names = (*EMBEDDED_MODELS, *MODELS[: slow_counts(0, len(MODELS))])
    for name in names:
        program = program_of(fused(read_gguf(tiny(name, tmp_path))))
        form = flat_plan.to_bytes(program, digest_of(program))
        assert flat_plan.from_bytes(form, program.graph, digest_of(program)) == program, name
        assert program.dispatches.grids, name


def submitted(device: Opened, variant: Variant) -> list[object]:
    """What a variant's indirect buffer has the device do, its addresses as the names of what lies there."""
    built, addresses = variant.built, device.backend.memory.addresses

    def name(low: int, high: int, *, shift: int = 0) -> str:
        return addresses.name((high << 32 | low) << shift) or "nowhere"

    told: list[object] = [repr(node) for node in built.nodes]
    for item in decode_stream(built.ib.words, Generation.GFX12):
        packet = item.packet
        if isinstance(packet, SetShReg) and packet.register == Sh.PGM_LO:
            told.append(("code", name(*packet.values, shift=8)))
        elif isinstance(packet, SetShReg) and packet.register == Sh.USER_DATA_0:
            told.append(("arguments", name(*packet.values)))
        elif isinstance(packet, DispatchIndirect):
            told.append(("grid", name(packet.address & 0xFFFFFFFF, packet.address >> 32)))
        else:
            told.append(packet)
    block = device.backend.content(built.block.device)
    for step in dispatches_of(variant.made_of).dispatches:
        places = struct.unpack_from(f"<{len(step.launch.buffers)}Q", block, step.arguments_offset)
        end = step.arguments_offset + step.launch.kernarg_bytes
        told += [addresses.name(va) for va in places]
        told.append(block[step.arguments_offset + 8 * len(places) : end])
    return told


def run(store: GraphStore | None, model: Path, tier: str) -> tuple[dict[str, list[object]], str]:
    """What a start built and computed, by what it is of, and how its programs came about."""
    gguf = read_gguf(model)
    with (
        opened(tier) as device,
        Engine(gguf, device.backend, ctx=64, options=EngineOptions(store=store)) as engine,
    ):
        sequence = engine.open()
        made: dict[str, list[object]] = {"prompt": engine.extend(sequence, PROMPT)[-1].tolist()}
        made["next"] = engine.extend(sequence, [7])[-1].tolist()
        for variant in engine.variants.ran():
            made[variant.graph.stage] = submitted(device, variant)
        assert device.found() == []
        return made, engine.variants.stored.starts.text if engine.variants.stored else ""


@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.rest
def test_warm_start_submits_the_same_work_without_planning(
    tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FOLDER / "qwen35moe-q.gguf"
    plain, told = run(None, model, tier)
    assert told == "" and any(plain["next"]) and len(plain["decode"]) > 500
    store = GraphStore("this code", tmp_path)
    cold, told = run(store, model, tier)
    assert told.startswith("0 read from the cache, 2 planned") and len(list(tmp_path.iterdir())) == 4

    def not_again(*_: object, **__: object) -> Any:
        raise AssertionError("a warm start plans")

    for module, name in (
        (variants, "fuse"),
        (variants, "verify"),
        (variants, "planned"),
        (resident, "lower"),
        (resident, "plan_memory"),
    ):
        monkeypatch.setattr(module, name, not_again)
    warm, told = run(GraphStore("this code", tmp_path), model, tier)
    assert told.startswith("2 read from the cache, 0 planned")
    assert plain == cold == warm


class Kept:
    """A small program's graph and plan in a folder, and what is read of them."""

    def __init__(self, folder: Path) -> None:
        self.program = program_of(fused(read_gguf(FOLDER / "qwen3-q.gguf")), (1, 1, 1))
        self.folder = folder
        assert self.read() == (0, 1)
        self.files = {path: path.read_bytes() for path in folder.glob("*.zro")}
        assert len(self.files) == 2 and self.read() == (1, 0)

    def read(self) -> tuple[int, int]:
        """How many programs were read and planned; the program is the right one either way."""
        stored = graph_store.StoredGraphs(ObjectCache(self.folder), ("a model",))
        graph = stored.graph("decode", lambda: self.program.graph)
        program = stored.program("decode", (1, 1, 1), lambda: program_of(graph, (1, 1, 1)))
        assert program == self.program
        return stored.starts.read, stored.starts.planned

    def with_content(self, path: Path, content: bytes) -> tuple[int, int]:
        path.write_bytes(content)
        read = self.read()
        path.write_bytes(self.files[path])
        return read


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def places_in(size: int, count: int) -> list[int]:
    """Every place of a file, or so many of them, its ends included."""
    return sorted({*range(0, size, max(1, size // count)), size - 1, *range(min(size, 48))})


@pytest.mark.rest
def test_truncated_file_is_rebuilt(kept: Kept, slow_counts: Counts) -> None:
    for path, content in kept.files.items():
        for end in places_in(len(content), slow_counts(12, 400)):
            kept.with_content(path, content[:end])
            assert kept.read() == (1, 0)
        assert kept.with_content(path, content + b"\0")[1] <= 1


def test_flipped_bit_is_detected(kept: Kept, slow_counts: Counts) -> None:
    cache = ObjectCache(kept.folder)
    for path, content in kept.files.items():
        for at in places_in(len(content), slow_counts(40, 4000)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            assert cache.mapped(path.stem) is None
        assert sum(kept.read()) == 1 and kept.read() == (1, 0)
        assert cache.mapped(path.stem) is not None


def test_corrupt_file_with_valid_checksums_raises_input_error(kept: Kept, slow_counts: Counts) -> None:
    """Any byte changed, and both checksums made to fit: a program or an InputError, never another error."""
    form = flat_plan.to_bytes(kept.program, digest := digest_of(kept.program))
    refused = 0
    for at in places_in(len(form), slow_counts(300, len(form))):
        if at < flat_plan.HASHED_FROM:
            continue
        changed = bytearray(form)
        changed[at] ^= 0x81
        changed[8:40] = hashlib.sha256(changed[flat_plan.HASHED_FROM :]).digest()
        try:
            flat_plan.from_bytes(bytes(changed), kept.program.graph, digest)
        except InputError:
            refused += 1
    assert refused > 50


def test_plan_of_another_graph_is_rejected(kept: Kept) -> None:
    form = flat_plan.to_bytes(kept.program, digest_of(kept.program))
    with pytest.raises(InputError, match="another graph's"):
        flat_plan.from_bytes(form, kept.program.graph, bytes(32))


def test_file_writable_by_others_is_ignored(kept: Kept) -> None:
    plan = max(kept.files, key=lambda path: len(kept.files[path]))
    plan.chmod(0o646)
    assert kept.read() == (0, 1)
    assert plan.stat().st_mode & 0o777 == 0o600 and kept.read() == (1, 0)


def test_unwritable_folder_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    (tmp_path / "file").touch()
    kept.folder = tmp_path / "file" / "folder"
    assert kept.read() == (0, 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept.folder = tmp_path / "full"
    monkeypatch.setattr(Path, "replace", full)
    assert kept.read() == (0, 1) and list(kept.folder.iterdir()) == []


def test_concurrent_processes_read_complete_files(kept: Kept) -> None:
    (key,) = (path.stem for path, content in kept.files.items() if content[40:44] == flat_plan.MAGIC)
    payload = kept.files[kept.folder / f"{key}.zro"][len(MAGIC) + 32 :]
    wrong: list[int] = []

    def rewrite_and_read() -> None:
        cache = ObjectCache(kept.folder)
        for turn in range(20):
            cache.store(key, payload)
            if cache.mapped(key) != payload:
                wrong.append(turn)

    threads = [threading.Thread(target=rewrite_and_read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not list(kept.folder.glob("*.part"))


def test_old_files_are_evicted(kept: Kept) -> None:
    for number, path in enumerate(kept.files):
        os.utime(path, (number, number))
    ObjectCache(kept.folder, keep_bytes=max(map(len, kept.files.values()))).trim()
    assert len(list(kept.folder.glob("*.zro"))) == 1


def test_cache_key_includes_every_input_of_the_program(tmp_path: Path) -> None:
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    with opened("t1") as t1, opened("t2") as t2:
        of = GraphStore("this code", tmp_path).of
        keys = [
            of(gguf, t1.backend, SequenceLimits(ctx=64))._key("plan"),
            of(gguf, t1.backend, SequenceLimits(ctx=65))._key("plan"),
            of(gguf, t2.backend, SequenceLimits(ctx=64))._key("plan"),
            of(replace(gguf, mtime_ns=1), t1.backend, SequenceLimits(ctx=64))._key("plan"),
            of(replace(gguf, metadata={**gguf.metadata, "x": 1}), t1.backend, SequenceLimits(ctx=64))._key("plan"),
        ]
        t1.backend.ordering = "canonical-1-q8"
        keys.append(of(gguf, t1.backend, SequenceLimits(ctx=64))._key("plan"))
        t1.backend.ordering = "canonical-1"
        keys.append(GraphStore("other code", tmp_path).of(gguf, t1.backend, SequenceLimits(ctx=64))._key("plan"))
    assert len(set(keys)) == len(keys)


def test_setting_disables_the_store() -> None:
    assert read_settings({}).graph_cache == "on"
    assert read_settings({"ZINC_RT_GRAPH_CACHE": "off"}).graph_cache == "off"
    with pytest.raises(UsageError, match="expected off or on"):
        read_settings({"ZINC_RT_GRAPH_CACHE": "0"})
