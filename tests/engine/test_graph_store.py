"""Graphs and plans kept from start to start: a warm start submits what a cold one did, and plans nothing.

What lies in the folder is believed only where it is whole, this user's alone, and of exactly this model, code and
kernels; whatever happens to it, the next start has the same program.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import struct
import threading
from collections import Counter
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import Counts
from test_ownership import OpenedDevice, open_simulated
from test_tier_identity import MODELS

from zinc_rt.engine import graph_store, resident, variants
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.graph_store import GraphStore
from zinc_rt.engine.resident import Variant, parse_capacity
from zinc_rt.engine.variants import EngineOptions, find_overrides
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.object_cache import MAGIC, ObjectCache
from zinc_rt.host.settings import Settings, read_settings
from zinc_rt.ir import serial
from zinc_rt.ir.graph import OpGraph, Stage
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.lower import PlannedGraph, find_refusal, flat_plan, lower, plan_dispatches, plan_graph
from zinc_rt.mem.plan import choose_linger, plan_memory
from zinc_rt.model.builder import Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.pm4.decode import decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import DispatchIndirect, SetShReg
from zinc_rt.pm4.registers import Sh

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
EMBEDDED_MODELS = ("qwen3-q", "qwen35moe-q", "gemma4-q", "gemma4moe-q")


def fused_graph(gguf: GGUFFile, ctx: int = 64, stage: Stage = "decode") -> OpGraph:
    """A model's graph as gfx1201 runs it."""
    graph = build_model(gguf, SequenceLimits(ctx=ctx, slots=2), stage).graph
    return fuse_graph(
        graph, lambda node, within: find_refusal(node, within, KERNELS.entries, "canonical-1") is None
    )


def program_of(graph: OpGraph, key: tuple[int, ...] = (16, 2, 1)) -> PlannedGraph:
    """Its program, without a device."""
    plan = plan_memory(graph, capacity=parse_capacity(key), linger=choose_linger(parse_capacity(key)))
    lowered = lower(graph, KERNELS.entries, plan, ordering="canonical-1", tier="t1")
    return plan_graph(replace(lowered, merging=KERNELS.merging))


def digest_of(program: PlannedGraph) -> bytes:
    return hashlib.sha256(serial.to_bytes(program.graph)).digest()


def write_tiny_model(name: str, folder: Path) -> Path:
    shipped = FOLDER / f"{name}.gguf"
    if shipped.exists():
        return shipped
    architecture, _, kind = name.partition("-")
    write_tiny(folder / f"{name}.gguf", architecture, quant=kind)
    return folder / f"{name}.gguf"


def test_program_round_trips(tmp_path: Path, slow_counts: Counts) -> None:
    names = (*EMBEDDED_MODELS, *MODELS[: slow_counts(0, len(MODELS))])
    for name in names:
        program = program_of(fused_graph(read_gguf(write_tiny_model(name, tmp_path))))
        form = flat_plan.to_bytes(program, digest_of(program))
        assert flat_plan.from_bytes(form, program.graph, digest_of(program)) == program, name
        assert program.dispatches.grids, name


def submitted_work(device: OpenedDevice, variant: Variant) -> list[object]:
    """Return the commands in a variant's indirect buffer, with addresses replaced by the names of the objects."""
    built, addresses = variant.built, device.backend.memory.addresses

    def name_address(low: int, high: int, *, shift: int = 0) -> str:
        return addresses.name((high << 32 | low) << shift) or "nowhere"

    texts: list[object] = [repr(node) for node in built.nodes]
    for item in decode_stream(built.ib.words, Generation.GFX12):
        packet = item.packet
        if isinstance(packet, SetShReg) and packet.register == Sh.PGM_LO:
            texts.append(("code", name_address(*packet.values, shift=8)))
        elif isinstance(packet, SetShReg) and packet.register == Sh.USER_DATA_0:
            texts.append(("arguments", name_address(*packet.values)))
        elif isinstance(packet, DispatchIndirect):
            texts.append(("grid", name_address(packet.address & 0xFFFFFFFF, packet.address >> 32)))
        else:
            texts.append(packet)
    block = device.backend.content(built.block.device)
    for step in plan_dispatches(variant.made_of).dispatches:
        places = struct.unpack_from(f"<{len(step.launch.buffers)}Q", block, step.arguments_offset)
        end = step.arguments_offset + step.launch.kernarg_bytes
        texts += [addresses.name(va) for va in places]
        texts.append(block[step.arguments_offset + 8 * len(places) : end])
    return texts


def run_tokens(
    store: GraphStore | None, model: Path, tier: str, ctx: int = 64
) -> tuple[dict[str, list[object]], str]:
    """The graphs and results of a start, and the origin of its programs."""
    gguf = read_gguf(model)
    with (
        open_simulated(tier) as device,
        Engine(gguf, device.backend, ctx=ctx, options=EngineOptions(store=store)) as engine,
    ):
        sequence = engine.open()
        result: dict[str, list[object]] = {"prompt": engine.extend(sequence, PROMPT)[-1].tolist()}
        result["next"] = engine.extend(sequence, [7])[-1].tolist()
        for variant in engine.variants.ran():
            result[variant.graph.stage] = submitted_work(device, variant)
        assert device.found() == []
        return result, engine.variants.stored.starts.text if engine.variants.stored else ""


@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.rest
def test_warm_start_submits_the_same_work_without_planning(
    tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FOLDER / "qwen35moe-q.gguf"
    plain, message = run_tokens(None, model, tier)
    assert message == "" and any(plain["next"]) and len(plain["decode"]) > 500
    store = GraphStore("this code", tmp_path)
    cold, message = run_tokens(store, model, tier)
    assert message.startswith("0 read from the cache, 2 planned") and len(list(tmp_path.iterdir())) == 4

    def fail_if_planned(*_: object, **__: object) -> Any:
        raise AssertionError("a warm start plans")

    for module, name in (
        (variants, "fuse_graph"),
        (variants, "verify_graph"),
        (variants, "plan_graph"),
        (resident, "lower"),
        (resident, "plan_memory"),
    ):
        monkeypatch.setattr(module, name, fail_if_planned)
    warm, message = run_tokens(GraphStore("this code", tmp_path), model, tier)
    assert message.startswith("2 read from the cache, 0 planned")
    assert plain == cold == warm


@cache
def small_program(ctx: int = 64, stage: Stage = "decode") -> PlannedGraph:
    return program_of(fused_graph(read_gguf(FOLDER / "qwen3-q.gguf"), ctx, stage), (1, 1, 1))


class StoredProgram:
    """Store a small program's graph and plan in a folder, and return what is read back."""

    def __init__(self, folder: Path, program: PlannedGraph | None = None, **decides: object) -> None:
        self.program = program or small_program()
        self.folder, self.decides = folder, decides or {"model": "a model"}
        self.refused: list[str] = []
        assert self.read() == (0, 1)
        self.files = {path: path.read_bytes() for path in folder.glob("*.zro")}
        assert len(self.files) == 2 and self.read() == (1, 0)

    def read(self) -> tuple[int, int]:
        """Return how many programs were read and planned; check the program in both cases."""
        stored = graph_store.StoredGraphs(ObjectCache(self.folder), self.decides)
        stage = self.program.graph.stage
        graph = stored.graph(stage, lambda: self.program.graph)
        assert graph == self.program.graph
        assert stored.program(stage, (1, 1, 1), lambda: self.program) == self.program
        self.refused = stored.starts.refused
        return stored.starts.read, stored.starts.planned

    def with_content(self, path: Path, content: bytes) -> tuple[int, int]:
        path.write_bytes(content)
        read = self.read()
        path.write_bytes(self.files[path])
        return read


@pytest.fixture
def stored_program(tmp_path: Path) -> StoredProgram:
    return StoredProgram(tmp_path)


def sample_offsets(size: int, count: int) -> list[int]:
    """Yield every position of a file, or at most that many, including both ends."""
    return sorted({*range(0, size, max(1, size // count)), size - 1, *range(min(size, 48))})


@pytest.mark.rest
def test_truncated_file_is_rebuilt(stored_program: StoredProgram, slow_counts: Counts) -> None:
    for path, content in stored_program.files.items():
        for end in sample_offsets(len(content), slow_counts(12, 400)):
            stored_program.with_content(path, content[:end])
            assert stored_program.read() == (1, 0)
        assert stored_program.with_content(path, content + b"\0")[1] <= 1


def test_flipped_bit_is_detected(stored_program: StoredProgram, slow_counts: Counts) -> None:
    cache = ObjectCache(stored_program.folder)
    for path, content in stored_program.files.items():
        for index in sample_offsets(len(content), slow_counts(40, 4000)):
            path.write_bytes(content[:index] + bytes([content[index] ^ 1 << index % 8]) + content[index + 1 :])
            with pytest.raises(InputError, match=r"does not begin with|checksum does not match"):
                cache.map_entry(path.stem)
        assert (
            sum(stored_program.read()) == 1
            and len(stored_program.refused) == 1
            and stored_program.read() == (1, 0)
        )
        assert cache.map_entry(path.stem) is not None


def test_corrupt_file_with_valid_checksums_raises_input_error(
    stored_program: StoredProgram, slow_counts: Counts
) -> None:
    """Any byte changed, and both checksums made to fit: a program or an InputError, never another error."""
    form = flat_plan.to_bytes(stored_program.program, digest := digest_of(stored_program.program))
    refused = 0
    for index in sample_offsets(len(form), slow_counts(300, len(form))):
        if index < flat_plan.HASHED_FROM:
            continue
        changed = bytearray(form)
        changed[index] ^= 0x81
        changed[8:40] = hashlib.sha256(changed[flat_plan.HASHED_FROM :]).digest()
        try:
            flat_plan.from_bytes(bytes(changed), stored_program.program.graph, digest)
        except InputError:
            refused += 1
    assert refused > 50


def test_plan_of_another_graph_is_rejected(stored_program: StoredProgram) -> None:
    form = flat_plan.to_bytes(stored_program.program, digest_of(stored_program.program))
    with pytest.raises(InputError, match="another graph"):
        flat_plan.from_bytes(form, stored_program.program.graph, bytes(32))


def test_file_writable_by_others_is_ignored(stored_program: StoredProgram) -> None:
    plan = max(stored_program.files, key=lambda path: len(stored_program.files[path]))
    plan.chmod(0o646)
    assert stored_program.read() == (0, 1) and stored_program.refused == [
        f"{plan.name[:16]}: other users can write to it"
    ]
    assert plan.stat().st_mode & 0o777 == 0o600 and stored_program.read() == (1, 0)


def test_unwritable_folder_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = StoredProgram(tmp_path)
    (tmp_path / "file").touch()
    kept.folder = tmp_path / "file" / "folder"
    assert kept.read() == (0, 1)

    def raise_disk_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept.folder = tmp_path / "full"
    monkeypatch.setattr(Path, "replace", raise_disk_full)
    assert kept.read() == (0, 1) and list(kept.folder.iterdir()) == []


def test_concurrent_processes_read_complete_files(stored_program: StoredProgram) -> None:
    (key,) = (path.stem for path, content in stored_program.files.items() if flat_plan.MAGIC in content)
    payload = stored_program.files[stored_program.folder / f"{key}.zro"][len(MAGIC) + 32 :]
    wrong: list[int] = []

    def rewrite_and_read() -> None:
        cache = ObjectCache(stored_program.folder)
        for turn in range(20):
            cache.store(key, payload)
            if cache.map_entry(key) != payload:
                wrong.append(turn)

    threads = [threading.Thread(target=rewrite_and_read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not list(stored_program.folder.glob("*.part"))


def test_old_files_are_evicted(stored_program: StoredProgram) -> None:
    for number, path in enumerate(stored_program.files):
        os.utime(path, (number, number))
    ObjectCache(stored_program.folder, keep_bytes=max(map(len, stored_program.files.values()))).trim()
    assert len(list(stored_program.folder.glob("*.zro"))) == 1


DAMAGES: dict[str, str] = {  # what was done to a file -> the reason for which it is refused
    "bit": "checksum does not match|does not begin with",
    "cut": "checksum does not match|bytes; expected at least the header's",
    "longer": "checksum does not match",
    "zeros": "checksum does not match",
    "swapped": "it was stored for another (content|capacity): ",
    "other graph": "it was stored for another graph: graph: 'prefill'; expected graph: 'decode'",
    "other limits": "it was stored for another ctx: ctx: 65; expected ctx: 64",
    "other code": "it was stored for another planning code: planning code: 'older'; expected planning code: 'new'",
    "no key": "its key does not begin with|its key has another length|it was stored for another ",
    "other format": "not a plan of version|version is 9; this build reads|checksum does not match",
}


def seal_payload(payload: bytes) -> bytes:
    """Write a file with that content and a matching checksum."""
    return MAGIC + hashlib.sha256(payload).digest() + payload


def damaged_file(damage: str, content: bytes, existing: dict[str, bytes], pick: random.Random) -> bytes:
    """A file whose content does not match its name. `existing`: files by how they were created."""
    if damage in existing:
        return existing[damage]
    index = pick.randrange(len(content))
    if damage == "bit":
        return content[:index] + bytes([content[index] ^ 1 << pick.randrange(8)]) + content[index + 1 :]
    if damage == "cut":
        return content[:index]
    if damage == "longer":
        return content + pick.randbytes(1 + index % 64)
    if damage == "zeros":
        index = pick.randrange(len(MAGIC) + 32, len(content) - 64)
        return (
            content[:index] + bytes(64) + content[index + 64 :]
            if any(content[index : index + 64])
            else content[:-1]
        )
    payload = content[len(MAGIC) + 32 :]
    if damage == "no key":  # the plain form, as before files had keys
        return seal_payload(payload[payload.index(b"Z", 8) if index % 2 else index % 512 + 1 :])
    form = payload.index(flat_plan.MAGIC if flat_plan.MAGIC in payload else serial.MAGIC)
    return seal_payload(payload[: form + 4] + (9).to_bytes(4, "little") + payload[form + 8 :])


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.rest)])
def test_damaged_or_foreign_files_are_refused_with_their_reasons(count: int, tmp_path: Path) -> None:
    """The right program each time, the reason told, and the file replaced, so that the next start reads it."""
    keyed = {"planning code": "new", "model": "a model", "ctx": 64}
    kept = StoredProgram(tmp_path / "own", **keyed)
    foreign = {
        "other graph": StoredProgram(tmp_path / "stage", small_program(stage="prefill"), **keyed),
        "other limits": StoredProgram(tmp_path / "limits", small_program(65), **{**keyed, "ctx": 65}),
        "other code": StoredProgram(tmp_path / "code", small_program(), **{**keyed, "planning code": "older"}),
    }
    kinds = {path: flat_plan.MAGIC in content for path, content in kept.files.items()}  # plan or graph
    pick, seen = random.Random(31), Counter[str]()
    for number in range(count):
        how = [*DAMAGES][number % len(DAMAGES)]
        path = pick.choice(list(kept.files))
        others = {
            name: content
            for name, item in foreign.items()
            for content in item.files.values()
            if (flat_plan.MAGIC in content) is kinds[path]
        }
        others["swapped"] = next(content for other, content in kept.files.items() if other != path)
        path.write_bytes(damaged_file(how, kept.files[path], others, pick))
        assert sum(kept.read()) == 1, (number, how)
        (reason,) = kept.refused
        assert reason.startswith(path.name[:16]) and re.search(DAMAGES[how], reason), (number, how, reason)
        assert kept.read() == (1, 0) and kept.refused == [], (number, how)
        assert path.read_bytes() == kept.files[path]
        seen[how] += 1
    assert len(seen) == len(DAMAGES) and min(seen.values()) == count // len(DAMAGES)


@pytest.mark.rest
def test_damaged_files_never_change_generated_tokens(tmp_path: Path) -> None:
    """The same on the simulated device, whose logits are those of graphs that nobody stored."""
    model, store = FOLDER / "qwen3-q.gguf", GraphStore("this code", tmp_path / "own")
    plain, _ = run_tokens(None, model, "t1")
    run_tokens(store, model, "t1")
    run_tokens(GraphStore("this code", tmp_path / "other"), model, "t1", ctx=65)
    own, other = (sorted((tmp_path / name).glob("*.zro")) for name in ("own", "other"))
    contents, foreign = [path.read_bytes() for path in own], [path.read_bytes() for path in other]
    assert len(own) == len(foreign) == 4
    pick = random.Random(7)
    for how in ("bit", "cut", "no key", "other format", "other limits"):
        for path, content in zip(own, contents, strict=True):
            kind = flat_plan.MAGIC in content
            alike = [item for item in foreign if (flat_plan.MAGIC in item) is kind]
            path.write_bytes(damaged_file(how, content, {"other limits": pick.choice(alike)}, pick))
        result, message = run_tokens(store, model, "t1")
        assert result == plain and "0 read from the cache, 2 planned, 4 refused (" in message, (how, message)
    result, message = run_tokens(store, model, "t1")
    assert result == plain and message.startswith("2 read from the cache, 0 planned, in ")


def test_cache_key_includes_every_input_of_the_program(tmp_path: Path) -> None:
    gguf, limits = read_gguf(FOLDER / "qwen3-q.gguf"), SequenceLimits(ctx=64)
    (part,) = gguf.parts
    shape = gguf.tensors["blk.0.attn_norm.weight"].shape
    one, other = [name for name, tensor in gguf.tensors.items() if tensor.shape == shape][:2]
    swapped = {**part.tensors, one: part.tensors[other], other: part.tensors[one]}
    with open_simulated("t1") as t1, open_simulated("t2") as t2:
        backend: Any = t1.backend
        kernels = backend.kernels

        def make_key(
            gguf: GGUFFile = gguf, limits: SequenceLimits = limits, code: str = "this code", **more: Any
        ) -> str:
            decides: Any = {"limits": limits, "delta_form": "ids", "overrides": Overrides(), **more}
            return GraphStore(code, tmp_path).of(gguf, backend, **decides)._make_key("plan", "decode", (1, 1, 1))

        keys = [make_key(), make_key(limits=SequenceLimits(ctx=65)), make_key(code="other code")]
        for name in ("slots", "state_rows", "step_tokens", "rows"):
            keys.append(make_key(limits=replace(limits, **{name: 3})))  # type: ignore[arg-type]
        keys += [make_key(limits=replace(limits, pages=(9,))), make_key(limits=replace(limits, page_tokens=32))]
        keys += [make_key(delta_form="inplace"), make_key(overrides=Overrides(decode_topk=1))]
        keys.append(make_key(prefill_ordering="wmma-bf16"))
        for other_part in (
            replace(part, mtime_ns=1),
            replace(part, size_bytes=1),
            replace(part, tensors=swapped),
        ):
            keys.append(make_key(replace(gguf, parts=(other_part,))))
        keys.append(make_key(replace(gguf, metadata={**gguf.metadata, "x": 1})))
        for changed in (
            replace(kernels, fuses=False),
            replace(kernels, merging=None),
            replace(kernels, merging=replace(kernels.merging, most=2)),
            replace(kernels, entries=kernels.entries[1:]),
            replace(kernels, target="gfx1200"),
        ):
            backend = SimpleNamespace(
                spec=t1.backend.spec, device=t1.backend.device, ordering="canonical-1", kernels=changed
            )
            keys.append(make_key())
        backend = t1.backend
        backend.ordering = "canonical-1-q8"
        keys.append(make_key())
        backend.ordering = "canonical-1"
        backend.device = replace(backend.device, arch="gfx1200")
        keys.append(make_key())
        backend = t2.backend
        keys.append(make_key())
    assert len(set(keys)) == len(keys) == 24


def test_every_option_of_an_engine_is_in_the_key_or_changes_no_plan() -> None:
    """A new field fails here until somebody has decided which of the two it is."""
    keyed = {"delta_form", "prefill_ordering", "settings"}
    changes_no_plan = {
        "observers", "timeout_seconds", "slow", "share_arenas", "highest_pages_first", "around", "store",
        "transform",  # such graphs are never stored
    }  # fmt: skip
    assert {field.name for field in fields(EngineOptions)} == keyed | changes_no_plan
    settings = Settings(lm_head_rows=3, decode_topk=2, gemma4_attn_scale=0.5)
    assert find_overrides(settings) == Overrides(3, 2, 0.5) and len(fields(Overrides)) == 3


def test_setting_disables_the_store() -> None:
    assert read_settings({}).graph_cache == "on"
    assert read_settings({"ZINC_RT_GRAPH_CACHE": "off"}).graph_cache == "off"
    with pytest.raises(UsageError, match="expected off or on"):
        read_settings({"ZINC_RT_GRAPH_CACHE": "0"})
