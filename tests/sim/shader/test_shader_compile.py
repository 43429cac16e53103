"""Compiling, and the objects kept on disk: what is torn is made again, writers do not disturb each other."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.host.object_cache import MAGIC, ObjectCache
from zinc_rt.sim.shader.run.compile import LoadedCode, compile_ir

IR = """
declare double @exp2(double)

define i32 @wave(ptr %state, ptr %context) {
  %value = load i32, ptr %state
  %number = sitofp i32 %value to double
  %power = call double @exp2(double %number)
  %result = fptosi double %power to i32
  ret i32 %result
}
"""


def call_function(loaded: LoadedCode, value: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(loaded.at["wave"])
    return function(ctypes.addressof(ctypes.c_int32(value)), None)


def test_compiled_code_runs_and_calls_the_c_library() -> None:
    assert call_function(LoadedCode(compile_ir(IR), ["wave"]), 5) == 32


def test_object_code_outlives_its_compiler() -> None:
    code = compile_ir(IR)
    first, second = LoadedCode(code, ["wave"]), LoadedCode(code, ["wave"])
    assert first.at["wave"] != second.at["wave"]
    del first
    assert call_function(second, 3) == 8


def test_invalid_ir_raises() -> None:
    with pytest.raises(RuntimeError):
        compile_ir("define i32 @wave() { ret i64 0 }")


def test_stored_object_is_loaded(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "new")
    assert cache.load("key") is None
    cache.store("key", b"object")
    assert ObjectCache(tmp_path / "new").load("key") == b"object"
    cache.store("key", b"another")
    assert cache.load("key") == b"another"


@pytest.mark.parametrize("corrupt", ["cut", "flipped", "empty", "foreign"])
def test_corrupt_file_is_treated_as_absent_until_stored_again(tmp_path: Path, corrupt: str) -> None:
    cache = ObjectCache(tmp_path)
    cache.store("key", bytes(range(256)))
    path = cache.path("key")
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    path.write_bytes(
        {"cut": data[:-1], "flipped": bytes(flipped), "empty": b"", "foreign": b"PNG" + data}[corrupt]
    )
    assert cache.load("key") is None
    cache.store("key", bytes(range(256)))
    assert cache.load("key") == bytes(range(256))


def test_unwritable_cache_is_not_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    cache = ObjectCache(blocked / "below")
    cache.store("key", b"object")
    assert cache.load("key") is None


def test_least_recently_used_entry_is_evicted_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, keep_bytes=3000)
    for number in range(5):
        cache.store(f"key{number}", bytes(800))
        os.utime(cache.path(f"key{number}"), (1000 + number, 1000 + number))
    assert cache.load("key0") is not None, "nothing is dropped before it is time to look"
    os.utime(cache.path("key1"), (2000, 2000))
    cache.load("key0")  # hit after an hour: young again
    cache.trim()
    kept = [number for number in range(5) if cache.load(f"key{number}") is not None]
    assert kept == [0, 1, 4]


def test_leftovers_of_a_dead_writer_are_removed(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    old, young = tmp_path / "dead.part", tmp_path / "alive.part"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    cache.trim()
    assert not old.exists() and young.exists()


WRITER = """
import sys, pathlib
from zinc_rt.host.object_cache import ObjectCache
cache = ObjectCache(pathlib.Path(sys.argv[1]), keep_bytes=200_000)
fill = sys.argv[2].encode()
for turn in range(200):
    cache.store(f"key{turn % 7}", fill * 10_000)
    for key in range(7):
        held = cache.load(f"key{key}")
        assert held is None or (len(held) == 10_000 and len(set(held)) == 1), "half a file"
"""


@pytest.mark.rest
def test_concurrent_writers_and_readers_see_complete_files(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), letter], stderr=subprocess.PIPE, text=True)
        for letter in "ab"
    ]
    for writer in writers:
        _, output = writer.communicate(timeout=60)
        assert writer.returncode == 0, output
    assert not list(tmp_path.glob("*.part"))
