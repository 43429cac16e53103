"""Images: one stored program in hosts of both languages and in the engine, and capsules that both exchange."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from exec_folder import (
    COUNT,
    PROMPT,
    RingGate,
    compile_host,
    load_host,
    load_library,
    open_engine,
    run_host,
    write_folder,
    x86,
)
from model.split_files import split

from zinc_rt.backends.cpu.image import CHECKED_FROM, HEADER, SECTIONS
from zinc_rt.cli.image import main as run_command
from zinc_rt.engine.image import IMAGE, KERNELS, count_wrong_logits, write_host_folder
from zinc_rt.exec.abi import ExecError, ExecLibrary, make_key
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.dtypes import CACHE_TYPES

MODELS = ("qwen3-q", "qwen35moe-q", "gemma4-q")  # pages; pages and recurrent rows; two pools of pages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("host"))


@pytest.fixture
def library() -> ExecLibrary:
    return load_library()


@pytest.fixture
def context(library: ExecLibrary, folder: Path) -> Iterator[int]:
    made = library.call("context_create", {"threads": 1, "kernels": folder / KERNELS})
    yield made
    library.call("context_destroy", made)


def decode_with_engine(model: str, ordering: str) -> tuple[list[int], np.ndarray]:
    with open_engine(model, ordering) as engine:
        sequence, tokens, answer = engine.open(), PROMPT, []
        for _ in range(COUNT):
            logits = engine.extend(sequence, tokens, rows="last")
            tokens = [int(np.argmax(logits[0]))]
            answer += tokens
        return answer, logits[0].copy()


@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.rest(keep=3)
def test_image_replays_with_the_bits_of_the_engine(tmp_path: Path, model: str, ordering: str) -> None:
    expected, logits = decode_with_engine(model, ordering)
    host = load_host().ImageHost(write_folder(tmp_path, model, ordering), threads=2)
    other = host.run(1, [7, *PROMPT], 0, 4)  # a second sequence changes nothing
    assert host.run(0, PROMPT, 0, COUNT) == expected != other
    assert (host.read("request[slot].logits", "<u4") == logits.view(np.uint32)).all()
    host.close()


def test_command_compares_the_image_and_fails_for_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_library()
    command = ["--model", str(GOLDEN / "qwen35moe-q.gguf"), "-o", str(tmp_path), "-c", "48"]
    assert (
        run_command(command) == 0 and "a token and a prompt have the bits of the engine" in capsys.readouterr().out
    )
    with open_engine("qwen35moe-q") as engine:
        assert count_wrong_logits(engine, write_folder(tmp_path, "qwen35moe-q")) == 0
        write_folder(tmp_path, "qwen35moe-q", "canonical-1-q8")
        assert count_wrong_logits(engine, tmp_path) > engine.model.vocab  # both programs
    assert run_command([*command, "--slots", "0"]) == 2
    assert run_command([*command[:2], "-o", "/dev/null/x"]) == 2 and "cannot create" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kv_type", CACHE_TYPES)
def test_images_of_all_golden_models_have_the_bits_of_the_engine(
    data_dir: Path, tmp_path: Path, kv_type: str
) -> None:
    compared = 0
    for path in sorted([*data_dir.glob("goldens/*.gguf"), *data_dir.glob("goldens2/*.gguf")]):
        try:
            engine = open_engine(path, kv_type=kv_type)
        except UnsupportedError:  # heads that are no whole blocks of q8_0
            continue
        with engine:
            if engine.model.pooling:
                with pytest.raises(UnsupportedError, match="images are of models that generate text"):
                    write_host_folder(engine, tmp_path)
                continue
            write_host_folder(engine, tmp_path)
            assert count_wrong_logits(engine, tmp_path) == 0, path
            sequence = engine.open()
            logits = engine.extend(sequence, PROMPT, rows="last")
            logits = engine.extend(sequence, [int(np.argmax(logits[0]))], rows="last")
            host = load_host().ImageHost(tmp_path, threads=2)
            host.run(1, PROMPT, 0, 2)
            assert (host.read("request[slot].logits", "<u4") == logits[0].view(np.uint32)).all(), path
            host.close()
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("model", MODELS)
def test_capsule_file_continues_with_equal_bits_in_other_units(tmp_path: Path, model: str) -> None:
    write_folder(tmp_path, model)
    host = load_host().ImageHost(tmp_path, threads=1)
    tokens = [*PROMPT, *host.run(0, PROMPT, 0, 20)]  # more than a page
    host.save(tmp_path / "s.zcap", 0, len(tokens) - 1)
    expected = host.run(0, tokens[-1:], len(tokens) - 1, 8)
    logits = host.read("request[slot].logits", "<u4")
    host.close()
    host = load_host().ImageHost(tmp_path, threads=1)  # as after a restart
    host.run(1, [9, 9, 9], 0, 1)
    position = host.load(tmp_path / "s.zcap", 0, 1)  # a fork
    for slot in (1, 0):
        assert host.run(slot, tokens[-1:], position, 8) == expected
        assert (host.read("request[slot].logits", "<u4") == logits).all()
    host.close()


@pytest.mark.rest
@pytest.mark.parametrize("model", MODELS)
def test_hosts_in_c_and_python_agree_and_exchange_capsules(tmp_path: Path, model: str) -> None:
    write_folder(tmp_path, model)
    program = compile_host(tmp_path)
    host = load_host().ImageHost(tmp_path, threads=2)
    expected = host.run(0, PROMPT, 0, COUNT)
    answer = run_host(
        program, tmp_path, COUNT, *PROMPT, "--save", tmp_path / "c.zcap", "--logits", tmp_path / "logits"
    )
    assert answer == expected
    assert (tmp_path / "logits").read_bytes() == host.read("request[slot].logits", "u1").tobytes()
    assert run_host(program, tmp_path, COUNT, "--load", tmp_path / "c.zcap") == expected
    position = host.load(tmp_path / "c.zcap", 1)
    assert host.run(1, expected[:1], position, COUNT - 1) == expected[1:]
    host.close()
    (tmp_path / "c.zcap").write_bytes(b"ZCAP" + bytes(99))
    done = subprocess.run([program, tmp_path, "4", "--load", tmp_path / "c.zcap"], capture_output=True, text=True)
    assert done.returncode == 1 and "exec_host: ZRT_ERR_VERSION: " in done.stderr and "Python" not in done.stderr


@x86
def test_kernel_refusal_fails_queued_work_and_later_replays_run(library: ExecLibrary, folder: Path) -> None:
    host = load_host().ImageHost(folder, threads=2)
    expected = host.run(0, PROMPT, 0, 2)
    with pytest.raises(ExecError, match=r"graph decode, task .*outside the vocabulary") as error:
        host.step(0, 100000, 0)
    assert error.value.status == "ZRT_ERR_REFUSED"
    gate, event = RingGate(library, host.context), library.call("event_create", host.context)
    other, buffer = (library.call(f"{kind}_create", host.context, "x", 8) for kind in ("stream", "buffer"))
    library.call("buffer_write", buffer, 0, b"12345678", 8)
    gate.close(host.stream)
    library.call("graph_replay", host.graph, make_key(1, 1, 1), host.stream)  # with the same token
    library.call("buffer_fill", buffer, 0, 4, host.stream)  # queued after it
    library.call("event_record", event, host.stream)
    library.call("stream_wait", other, event)
    library.call("buffer_fill", buffer, 4, 4, other)
    gate.open()
    for stream in (other, host.stream):
        with pytest.raises(ExecError, match="outside the vocabulary"):
            library.call("stream_synchronize", stream, 60 * 10**9)
        library.call("stream_synchronize", stream, 0)  # reported once
    kept = bytearray(8)
    library.call("buffer_read", buffer, 0, kept, 8)
    assert kept == b"12345678"
    assert host.run(0, PROMPT, 0, 2) == expected
    host.close()


@x86
def test_memory_in_flight_and_wrong_units_are_refused(library: ExecLibrary, folder: Path, context: int) -> None:
    image = library.call("image_open", context, folder / IMAGE, None)
    graph, stream = library.call("image_graph", image, "decode"), library.call("stream_create", context, "main", 0)
    capsule = library.take_capsule(image, {"pages_0": [0, 1]})
    port = library.call("graph_port", graph, make_key(1, 1, 1), "step.counts")
    gate = RingGate(library, context)
    gate.close(stream)
    library.call("graph_replay", graph, make_key(1, 1, 1), stream)
    refused = []
    for call in (
        lambda: library.call("buffer_write", port.buffer, port.offset_bytes, b"1234", 4),
        lambda: library.call("image_close", image),
        lambda: library.restore_capsule(capsule, {"pages_0": [2, 3]}),
        lambda: library.call("stream_destroy", stream),
    ):
        with pytest.raises(ExecError) as error:
            call()
        refused.append(error.value.status)
    assert refused == ["ZRT_ERR_IN_FLIGHT"] * 4
    gate.open()
    library.call("stream_synchronize", stream, 60 * 10**9)
    wrong = (
        ({"pages_0": [2]}, "RANGE"), ({"pages_0": [2, 2]}, "EXISTS"), ({"pages_0": [2, 999]}, "RANGE"),
        ({"pages": [2, 3]}, "NOT_FOUND"), ({}, "RANGE"),
    )  # fmt: skip
    for units, status in wrong:
        with pytest.raises(ExecError) as error:
            library.restore_capsule(capsule, units)
        assert error.value.status == f"ZRT_ERR_{status}", units
    library.restore_capsule(capsule, {"pages_0": [3, 2]})


WRONG_FIELDS = (
    ("files", "name", 1 << 30),
    ("buffers", "kind", 9),
    ("buffers", "source", 99),
    ("graphs", "variants", 9),
    ("variants", "counts_offset", 1 << 40),
    ("variants", "tasks", 1 << 30),
    ("ports", "buffer", 9999),
    ("tasks", "kernel", 1 << 30),
    ("tasks", "source", 1 << 40),
    ("tasks", "arguments_offset", 1 << 40),
    ("tasks", "least", 0),
    ("tasks", "dims", 0x80000063),
    ("relocations", "at", 1 << 40),
    ("relocations", "addend", 1 << 40),
    ("relocations", "buffer", 9999),
    ("groups", "units", 0),
    ("members", "unit_bytes", 1 << 40),
    ("members", "buffer", 0),  # the model file
    ("properties", "name", 1 << 30),
)


def find_section(content: bytes, name: str) -> int:
    """Return the offset of a section of an image."""
    counts = np.frombuffer(content, HEADER, 1)[0]["counts"].tolist()
    before = list(SECTIONS)[: list(SECTIONS).index(name)]
    sizes = (count * SECTIONS[section].itemsize for section, count in zip(before, counts, strict=False))
    return HEADER.itemsize + sum(sizes)


def reseal(content: bytearray) -> bytes:
    """Return an image with a checksum that fits."""
    content[8:12] = zlib.crc32(content[CHECKED_FROM:]).to_bytes(4, "little")
    return bytes(content)


def list_wrong_images(content: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield damaged and forged images, each with its error."""
    yield "empty", "FILE", b""
    yield "short", "FORMAT", content[:100]
    yield "torn", "FORMAT", content[:-8]
    yield "longer", "FORMAT", content + bytes(8)
    for byte in (16, 40, 200, len(content) // 2, len(content) - 1):
        yield f"bit of byte {byte}", "FORMAT", content[:byte] + bytes([content[byte] ^ 1]) + content[byte + 1 :]
    yield "version", "VERSION", content[:4] + b"\2" + content[5:]
    other = bytearray(content)
    other[24:34] = b"0123456789"
    yield "kernels", "VERSION", reseal(other)
    for section, field, value in WRONG_FIELDS:
        begin, dtype = find_section(content, section), SECTIONS[section]
        record = np.frombuffer(content, dtype, 1, begin).copy()
        record[field] = value
        yield (
            f"{section} {field}",
            "FORMAT",
            reseal(bytearray(content[:begin] + record.tobytes() + content[begin + dtype.itemsize :])),
        )


def test_damaged_images_and_other_models_are_refused(
    library: ExecLibrary, folder: Path, context: int, tmp_path: Path
) -> None:
    content = (folder / IMAGE).read_bytes()
    for what, status, wrong in list_wrong_images(content):
        (tmp_path / what).write_bytes(wrong)
        with pytest.raises(ExecError) as error:
            library.call("image_open", context, tmp_path / what, None)
        assert error.value.status == f"ZRT_ERR_{status}", (what, error.value)
    model = (GOLDEN / "qwen3-q.gguf").read_bytes()
    (tmp_path / "moved.gguf").write_bytes(model)
    library.call("image_open", context, folder / IMAGE, tmp_path / "moved.gguf")
    for what, wrong in (("weights", model[:-5] + b"wrong"), ("part", model[:-5])):
        (tmp_path / what).write_bytes(wrong)
        with pytest.raises(ExecError, match="is not the model file that the image was written for"):
            library.call("image_open", context, folder / IMAGE, tmp_path / what)
    with pytest.raises(ExecError, match="ZRT_ERR_NOT_FOUND"):
        library.call("image_open", context, tmp_path / "missing", None)
    without = library.call("context_create", {"threads": 1})
    with pytest.raises(ExecError, match="ZRT_ERR_UNSUPPORTED"):
        library.call("image_open", without, folder / IMAGE, None)
    library.call("context_destroy", without)


def test_image_of_a_split_model_maps_every_part(library: ExecLibrary, tmp_path: Path) -> None:
    parts = split(GOLDEN / "qwen3-q.gguf", tmp_path, [0, 9])  # the first has no weights
    host = load_host().ImageHost(write_folder(tmp_path / "host", parts[0]), threads=1)
    assert host.run(0, PROMPT, 0, 4) == decode_with_engine("qwen3-q", "canonical-1")[0][:4]
    with pytest.raises(ExecError, match="names 2 model files; only one can be replaced"):
        library.call("image_open", host.context, tmp_path / "host" / IMAGE, parts[0])
    host.close()


def forge_image(content: bytes, draw: random.Random) -> bytes:
    """Return an image with one wrong number in a record, and a checksum that fits."""
    counts = np.frombuffer(content, HEADER, 1)[0]["counts"].tolist()
    forged, at = bytearray(content), HEADER.itemsize
    places = []
    for count, dtype in zip(counts, SECTIONS.values(), strict=False):
        if count:
            places.append((at, at + count * dtype.itemsize))
        at += count * dtype.itemsize
    begin, end = draw.choice([*places, (CHECKED_FROM, HEADER.itemsize)])
    where = draw.randrange(begin, end, 4)
    value = draw.choice([0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, draw.getrandbits(32)])
    forged[where : where + 4] = value.to_bytes(4, "little")
    return reseal(forged)


def open_forged_images(library: ExecLibrary, folder: Path, target: Path, count: int) -> int:
    """Open forged images, and close those that are accepted. Return how many were refused."""
    content, draw, refused = (folder / IMAGE).read_bytes(), random.Random(44), 0
    context = library.call("context_create", {"threads": 1, "kernels": folder / KERNELS})
    for _ in range(count):
        target.write_bytes(forge_image(content, draw))
        try:
            library.call("image_close", library.call("image_open", context, target, None))
        except ExecError:
            refused += 1
    library.call("context_destroy", context)
    return refused


def test_forged_records_are_refused_or_harmless_to_open(
    library: ExecLibrary, folder: Path, tmp_path: Path
) -> None:
    assert open_forged_images(library, folder, tmp_path / "forged", 150) > 50


if __name__ == "__main__":
    print(open_forged_images(ExecLibrary(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
