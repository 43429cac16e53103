"""The C library of the execution contract: its objects, rings, and what it does with wrong calls."""

from __future__ import annotations

import ctypes
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from backends.fake_gpu import FakeGpu, FakeSide
from bad_calls import run_bad_calls, run_valid_calls
from exec_folder import (
    COUNT,
    EXAMPLES,
    PROMPT,
    SECOND,
    PlainRing,
    RingGate,
    adopt_dwords,
    load_host,
    load_library,
    open_engine,
    run_host,
    write_folder,
    x86,
)

from zinc_rt.backends import registry
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.hang import Hang
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.publish import STORE_FENCE
from zinc_rt.backends.amd.ring_loan import RingLoan
from zinc_rt.backends.base import Device
from zinc_rt.backends.cpu.native import REFUSALS
from zinc_rt.backends.exec_library import FOR_IR, SOURCES, compile_exec_library, generate_hidden_publish
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.image import IMAGE, KERNELS
from zinc_rt.engine.runner import take_block
from zinc_rt.exec import Stream
from zinc_rt.exec.abi import FOLDER, ExecError, ExecLibrary, list_constants, list_functions, make_key
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.kernels.native.build import HEADERS, find_compiler, make_environment
from zinc_rt.model.gguf import read_gguf
from zinc_rt.pm4.packets import WaitRegMem, WriteData


@pytest.fixture
def library() -> ExecLibrary:
    return load_library()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("host"))


@pytest.fixture
def context(library: ExecLibrary) -> Iterator[int]:
    made = library.call("context_create", {"threads": 1})
    yield made
    library.call("context_destroy", made)


def status_of(call, *arguments: object) -> str:
    with pytest.raises(ExecError) as error:
        call(*arguments)
    return error.value.status


def test_header_and_library_name_the_same_statuses(library: ExecLibrary) -> None:
    statuses = {name: value for name, value in list_constants().items() if name.startswith(("ZRT_OK", "ZRT_ERR_"))}
    assert sorted(statuses.values()) == list(range(len(statuses)))
    assert {library.error(value).status for value in statuses.values()} == set(statuses)
    assert library.error(99).status == "unknown status"
    table = (FOLDER / "context.c").read_text().partition("REFUSALS[] = {")[2].partition("}")[0]
    texts = re.findall(r'"([^"]*)"', table)
    assert texts[1:] == list(REFUSALS.values())


def test_library_exports_only_the_functions_of_the_header(library: ExecLibrary) -> None:
    elffile = pytest.importorskip("elftools.elf.elffile")
    section = elffile.ELFFile(io.BytesIO(compile_exec_library())).get_section_by_name(".dynsym")
    exported = {item.name for item in section.iter_symbols() if item["st_shndx"] != "SHN_UNDEF"}
    assert exported - {""} == {*list_functions(), "zrt_abi_version", "zrt_status_text", "zrt_last_error"}


def test_every_function_accepts_valid_calls(library: ExecLibrary, folder: Path) -> None:
    assert run_valid_calls(library, folder) == []


def test_bad_calls_return_errors(library: ExecLibrary, folder: Path) -> None:
    count, wrong = run_bad_calls(library, folder)
    assert wrong == [] and count > 4 * len(list_functions())


@x86
def test_streams_events_and_plans_order_copies(library: ExecLibrary, context: int) -> None:
    call = library.call
    a, b, c = (call("buffer_create", context, name, 8) for name in "abc")
    one, two = call("stream_create", context, "one", 0), call("stream_create", context, "two", 5)
    event, gate = call("event_create", context), RingGate(library, context)
    assert status_of(call, "stream_wait", two, event) == "ZRT_ERR_STATE"
    call("buffer_write", a, 0, b"abcdefgh", 8)
    gate.close(one)  # `two` must wait for it, though its priority is higher
    call("buffer_copy", b, 0, a, 0, 8, one)
    call("event_record", event, one)
    call("stream_wait", two, event)
    call("buffer_copy", c, 0, b, 4, 4, two)
    for buffer in (a, b, c):
        assert status_of(call, "buffer_write", buffer, 0, b"1", 1) == "ZRT_ERR_IN_FLIGHT"
    gate.open()
    call("stream_synchronize", two, 60 * SECOND)
    got = bytearray(8)
    call("buffer_read", c, 0, got, 8)
    assert got == b"efgh\0\0\0\0" and call("event_query", event) == 1
    assert status_of(call, "buffer_copy", b, 0, b, 4, 8, one) == "ZRT_ERR_RANGE"
    assert status_of(call, "buffer_copy", b, 0, b, 2, 4, one) == "ZRT_ERR_RANGE"
    plan = call("plan_create", context)
    assert status_of(call, "plan_execute", plan) == status_of(call, "plan_wait", plan, 0) == "ZRT_ERR_STATE"


def test_plan_orders_replays_and_needs_every_program(library: ExecLibrary, folder: Path) -> None:
    call, key = library.call, make_key(1, 1, 1)
    host_context = call("context_create", {"threads": 1, "kernels": folder / KERNELS})
    image = call("image_open", host_context, folder / IMAGE, None)
    graph, plan = call("image_graph", image, "decode"), call("plan_create", host_context)
    streams = [call("stream_create", host_context, f"s{i}", i) for i in range(3)]
    steps = [call("plan_add", plan, graph, key, stream) for stream in streams]
    call("plan_after", plan, steps[0], steps[2])
    call("plan_after", plan, steps[1], steps[0])
    assert status_of(call, "plan_after", plan, steps[2], steps[1]) == "ZRT_ERR_STATE"
    assert status_of(call, "plan_after", plan, steps[1], steps[0]) == "ZRT_ERR_EXISTS"
    for _ in range(3):
        call("plan_execute", plan)
        call("plan_wait", plan, 60 * SECOND)
    missing = call("plan_add", plan, graph, 99, streams[0])
    assert status_of(call, "plan_execute", plan) == "ZRT_ERR_NO_VARIANT" and missing == 3
    call("stream_synchronize", streams[2], 0)  # nothing was submitted
    call("context_destroy", host_context)


def test_program_of_the_python_tier_is_adopted(library: ExecLibrary, folder: Path) -> None:
    with open_engine("qwen3-q") as engine:
        sequence = engine.open()
        token = int(np.argmax(engine.extend(sequence, PROMPT, rows="last")[0]))
        expected = engine.extend(sequence, [token], rows="last").copy()
        variant = engine.variants.get("decode", (1, 1, 1))
        block = take_block(variant)
        block.counts[:3] = 1
        block.views["request[slot].token_id"][0], block.views["request[slot].position"][0] = token, len(PROMPT)
        variant.write_step(block.raw)
        variant.buffers["output/request[*].logits"].storage[:] = 0
        context = library.call("context_create", {"threads": 2, "kernels": folder / KERNELS})
        graph, stream = (library.call(f"{kind}_create", context, "x", 1) for kind in ("graph", "stream"))
        tasks = ctypes.addressof(variant.built.struct)
        library.call("graph_adopt", graph, 7, {"kind": list_constants()["ZRT_PROGRAM_TASKS"], "tasks": tasks})
        library.call("graph_replay", graph, 7, stream)
        library.call("stream_synchronize", stream, 60 * SECOND)
        got = variant.read("request[slot].logits", (1, 1, 1))
        assert (got.view(np.uint32) == expected.view(np.uint32)).all()
        library.call("context_destroy", context)


def test_context_is_destroyed_with_work_queued_and_others_go_on(library: ExecLibrary, folder: Path) -> None:
    host = load_host().ImageHost(folder, threads=2)
    expected = host.run(0, PROMPT, 0, 4)
    for _ in range(3):
        context = library.call("context_create", {"threads": 2, "kernels": folder / KERNELS})
        image = library.call("image_open", context, folder / IMAGE, None)
        graph, stream = (
            library.call("image_graph", image, "decode"),
            library.call("stream_create", context, "x", 0),
        )
        for _ in range(200):
            library.call("graph_replay", graph, make_key(1, 1, 1), stream)
        library.call("context_destroy", context)
        assert status_of(library.call, "stream_synchronize", stream, 0) == "ZRT_ERR_HANDLE"
    answers: list[list[int]] = []
    hosts = [load_host().ImageHost(folder, threads=1) for _ in range(2)]
    threads = [threading.Thread(target=lambda of=of: answers.append(of.run(0, PROMPT, 0, 4))) for of in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected, expected]
    for of in (host, *hosts):
        of.close()


# Rings


@x86
def test_ring_is_published_with_fence_values_and_given_back(library: ExecLibrary, context: int) -> None:
    call, memory = library.call, PlainRing.make(start_dw=60, fence=5)
    ring = call("stream_open_ring", context, "ring", memory.describe())
    graph = call("graph_create", context, "g", 4)
    adopt_dwords(library, graph, 1, ring, 10)
    for value in range(6, 30):  # several laps
        start = int(memory.registers[0])
        call("graph_replay", graph, 1, ring)
        assert memory.published(start) == [100, 101, value, 0, *range(104, 110)]
        assert status_of(call, "stream_synchronize", ring, 1000) == "ZRT_ERR_TIMEOUT"
        memory.consume(value)
        call("stream_synchronize", ring, SECOND)
    assert call("ring_position", ring) == (60 + 24 * 10, 29)
    other = call("stream_create", context, "host", 0)
    assert status_of(call, "graph_replay", graph, 1, other) == "ZRT_ERR_UNSUPPORTED"
    call("stream_destroy", ring)
    assert status_of(call, "graph_replay", graph, 1, ring) == "ZRT_ERR_HANDLE"


@x86
def test_full_ring_times_out_and_a_wrong_fence_loses_it(library: ExecLibrary, context: int) -> None:
    call, memory = library.call, PlainRing.make()
    ring = call("stream_open_ring", context, "ring", memory.describe())
    graph, buffer = call("graph_create", context, "g", 4), call("buffer_create", context, "b", 64)
    adopt_dwords(library, graph, 1, ring, 21)
    adopt_dwords(library, graph, 2, ring, 4)
    call("graph_bind", graph, 1, "in", buffer, 0, 64)
    for _ in range(3):
        call("graph_replay", graph, 1, ring)  # 63 dwords: one stays free
    assert status_of(call, "graph_replay", graph, 2, ring) == "ZRT_ERR_TIMEOUT"
    assert status_of(call, "buffer_write", buffer, 0, b"1", 1) == "ZRT_ERR_IN_FLIGHT"
    assert status_of(call, "graph_remove", graph, 1) == "ZRT_ERR_IN_FLIGHT"
    memory.registers[3] = 1  # the first is done: its dwords were read, whatever rptr says
    memory.registers[2] = 21
    call("graph_replay", graph, 1, ring)
    memory.registers[3] = 77
    assert status_of(call, "stream_synchronize", ring, SECOND) == "ZRT_ERR_LOST"
    assert status_of(call, "graph_replay", graph, 1, ring) == "ZRT_ERR_LOST"
    busy = PlainRing.make(fence=3).describe(fence_value=4)
    assert status_of(call, "stream_open_ring", context, "busy", busy) == "ZRT_ERR_IN_FLIGHT"


@x86
def test_ring_waits_for_another_ring_by_a_packet_and_for_the_host(library: ExecLibrary, context: int) -> None:
    call, first, second = library.call, PlainRing.make(fence=40), PlainRing.make()
    packet = (ctypes.c_uint32 * 6)(*range(900, 906))
    wait = {"wait_dwords": ctypes.addressof(packet), "wait_dw": 6, "wait_address_at": 1, "wait_value_at": 4}
    one = call("stream_open_ring", context, "one", first.describe())
    two = call("stream_open_ring", context, "two", second.describe(**wait))
    graph, event = call("graph_create", context, "g", 4), call("event_create", context)
    adopt_dwords(library, graph, 1, one, 8)
    adopt_dwords(library, graph, 2, two, 8)
    call("graph_replay", graph, 1, one)
    call("event_record", event, one)
    call("stream_wait", two, event)
    call("graph_replay", graph, 2, two)
    assert second.published(0) == [900, 0x1000, 0xABCD, 903, 41, 0, 100, 101, 1, 0, *range(104, 108)]
    host, done = call("stream_create", context, "host", 0), call("event_create", context)
    buffer = call("buffer_create", context, "b", 8)
    call("stream_wait", host, event)
    call("buffer_fill", buffer, 0, 8, host)  # the worker waits for ring one
    call("event_record", done, host)
    assert call("event_query", done) == 0
    threading.Timer(0.01, first.consume, [41]).start()
    call("event_wait", done, 60 * SECOND)
    second.consume(1)
    call("stream_synchronize", two, SECOND)
    call("graph_replay", graph, 1, one)
    call("event_record", event, one)
    call("stream_wait", host, event)
    call("buffer_fill", buffer, 0, 8, host)
    call("event_record", done, host)
    threading.Timer(0.01, first.consume, [99]).start()  # a value that no submission writes
    assert status_of(call, "event_wait", done, 60 * SECOND) == "ZRT_ERR_LOST"


@x86
def test_graph_drops_the_least_recently_replayed_program_once(library: ExecLibrary, context: int) -> None:
    call, memory, released = library.call, PlainRing.make(), []
    ring = call("stream_open_ring", context, "ring", memory.describe())
    graph = call("graph_create", context, "g", 2)
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(released.append)
    address = ctypes.cast(release, ctypes.c_void_p).value or 0

    def adopt(key: int) -> None:
        adopt_dwords(library, graph, key, ring, 4, release=address, owner=key)

    adopt(1)
    adopt(2)
    call("graph_replay", graph, 1, ring)
    memory.consume(1)
    assert status_of(adopt, 2) == "ZRT_ERR_EXISTS"
    adopt(3)
    assert released == [2] and status_of(call, "graph_find", graph, 2) == "ZRT_ERR_NO_VARIANT"
    call("graph_replay", graph, 1, ring)
    call("graph_replay", graph, 3, ring)
    assert status_of(adopt, 4) == "ZRT_ERR_IN_FLIGHT" and released == [2]
    memory.consume(3)
    keys = (ctypes.c_uint64 * 4)()
    assert call("graph_keys", graph, keys, 4) == 2 and list(keys) == [1, 3, 0, 0]
    call("graph_remove", graph, 1)
    call("graph_destroy", graph)
    assert released == [2, 1, 3]


@x86
@pytest.mark.rest
@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_library_replays_a_lent_ring_of_a_gpu_tier(library: ExecLibrary, tier: str) -> None:
    """The simulated device executes what the library publishes; the backend goes on afterwards."""
    backend = open_backend(choose_tier(tier, "sim"), "canonical-1")
    assert isinstance(backend, AmdBackend)
    with Engine(read_gguf(GOLDEN / "qwen3-q.gguf"), backend, ctx=64) as engine:
        sequence = engine.open()
        token = int(np.argmax(engine.extend(sequence, PROMPT, rows="last")[0]))
        expected = engine.extend(sequence, [token], rows="last").tobytes()
        following = engine.extend(sequence, [5], rows="last").tobytes()
        engine.rewind(sequence, len(PROMPT))
        variant = engine.variants.get("decode", (1, 1, 1))
        block = take_block(variant)
        block.counts[:3] = 1
        block.views["request[slot].token_id"][0], block.views["request[slot].position"][0] = token, len(PROMPT)
        doorbells = backend.submissions.doorbells
        context = library.call("context_create", {})
        graph = library.call("graph_create", context, "decode", 8)
        with RingLoan(library, context, backend, engine.runner.stream) as loan:
            loan.adopt(graph, 1, variant.built)
            for _ in range(4):
                variant.write_step(block.raw)
                library.call("graph_replay", graph, 1, loan.stream)
                library.call("stream_synchronize", loan.stream, 300 * SECOND)
                assert variant.read("request[slot].logits", (1, 1, 1)).tobytes() == expected
        library.call("context_destroy", context)
        assert backend.submissions.doorbells == doorbells  # the backend rang none
        engine.extend(sequence, [token], rows="last")
        assert engine.extend(sequence, [5], rows="last").tobytes() == following
        assert backend.instrument is not None and backend.instrument.findings() == []


@x86
def test_hang_on_a_lent_ring_is_reported_when_it_is_taken_back(
    library: ExecLibrary, context: int, tmp_path: Path
) -> None:
    gpu = FakeGpu(kind="kfd")
    options = AmdOptions(ring_bytes=4096, timeout_seconds=0.05, hang_folder=tmp_path)
    backend = AmdBackend(FakeSide(gpu), registry.spec("t1"), Device("fake", "gfx1201", simulated=True), options)
    flag, stream = backend.alloc(4096, "host_visible", "flag"), Stream("main")
    good = backend.build(PacketList((WriteData(flag.gpu_va + 8, (1,)),), "good"), {})
    stuck = backend.build(PacketList((WaitRegMem(flag.gpu_va, 42),), "stuck"), {})
    graph = library.call("graph_create", context, "g", 2)
    loan = RingLoan(library, context, backend, stream)
    loan.adopt(graph, 1, good)
    loan.adopt(graph, 2, stuck)
    library.call("graph_replay", graph, 1, loan.stream)
    gpu.run()
    library.call("stream_synchronize", loan.stream, 60 * SECOND)
    assert backend.read(flag, 8, 1)[0] == 1
    library.call("graph_replay", graph, 2, loan.stream)
    gpu.run()
    assert status_of(library.call, "stream_synchronize", loan.stream, SECOND // 100) == "ZRT_ERR_TIMEOUT"
    with pytest.raises(Hang, match="fence 2 not reached") as hang:
        loan.close(0.01)
    report = hang.value.report
    assert "WAIT_REG_MEM" in report.ib and report.submissions[-1].ib_name == "stuck"
    backend.close(drain_seconds=0.0)


# Sanitizers


@pytest.mark.rest
def test_sanitizers_find_nothing(folder: Path, tmp_path: Path) -> None:
    """AddressSanitizer and UndefinedBehaviorSanitizer watch every bad call, forged images and the host in C."""
    compiler = next(filter(None, map(shutil.which, ("gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no gcc or clang: the compiler of the extra `native` has no AddressSanitizer")
    flags = ("-std=c2x", "-g", "-O1", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    library, host, objects = tmp_path / "exec.so", tmp_path / "host", [tmp_path / f"{name}.o" for name in SOURCES]

    def compile_parts(*options: object) -> None:
        done = subprocess.run([compiler, *flags, *options], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{compiler} has no sanitizers here: {done.stderr.strip()[-300:]}")

    for name, output in zip(SOURCES, objects, strict=True):
        compile_parts(f"-I{HEADERS}", "-c", FOLDER / name, "-o", output)
    if platform.machine() in STORE_FENCE:
        objects.append(tmp_path / "publish.o")
        (tmp_path / "publish.ll").write_text(generate_hidden_publish())
        ir = ("-O2", "-fPIC", *FOR_IR, "-c", str(tmp_path / "publish.ll"), "-o", str(objects[-1]))
        subprocess.run((*find_compiler().command, *ir), check=True, env=make_environment(), timeout=300)
    compile_parts("-shared", *objects, "-o", library)
    compile_parts(f"-I{FOLDER}", EXAMPLES / "exec_host.c", *objects, "-o", host)
    find = [compiler, "-print-file-name=libasan.so"]
    runtime = subprocess.run(find, capture_output=True, text=True).stdout.strip()
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    tests = Path(__file__).parent
    environment["PYTHONPATH"] = os.pathsep.join([str(tests), *sys.path])
    for program in (("bad_calls.py",), ("test_exec_image.py", tmp_path / "forged", 150)):
        command = [sys.executable, tests / program[0], library, folder, *map(str, program[1:])]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and re.fullmatch(r"\d+\n", done.stdout), done.stdout + done.stderr[-3000:]
    expected = run_host(host, folder, COUNT, *PROMPT, "--save", tmp_path / "s.zcap")  # with its leaks
    assert run_host(host, folder, COUNT, "--load", tmp_path / "s.zcap") == expected
