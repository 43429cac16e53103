"""Which native library is used: tried in a child process, stepped down a level where wrong, kept where right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kernels.native.libraries import faulty_library, find_compiler

from zinc_rt.backends.cpu import library
from zinc_rt.backends.cpu.library import Library, select_library
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.kernels.native import build

USING = build.Compiler(("no such program",), "a compiler of the tests")
BEST, NEXT, LAST = "native", "x86_64_v3", "x86_64_v2"


class CompiledLibraries:
    """A compiler with known output; `made` lists the requests in order."""

    def __init__(self, **levels: bytes | UnsupportedError) -> None:
        self.levels = levels
        self.made: list[str] = []

    def __call__(self, using: build.Compiler, level: str) -> bytes:
        self.made.append(level)
        content = self.levels[level]
        if isinstance(content, UnsupportedError):
            raise content
        return content


def choose_library(
    folder: Path,
    builds: CompiledLibraries,
    levels: Sequence[str] = (BEST, NEXT, LAST),
    report: Callable[[str], None] = print,
) -> Library:
    """Accept the small library if it has no fault; run the self-test for every other one."""
    good = faulty_library("none")

    def reject_content(content: bytes) -> str:
        return "" if content == good else library.run_self_test(content)

    return select_library(
        ObjectCache(folder / "cache"), USING, levels, compile=builds, check=reject_content, report=report
    )


def find_cached_library(folder: Path) -> Path:
    """Return the library's file in the cache. The other files are verdicts."""
    return max((folder / "cache").glob("*.zro"), key=lambda path: path.stat().st_size)


@pytest.fixture
def good_library(tmp_path: Path) -> bytes:
    return faulty_library("none")


@pytest.mark.rest
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("bad instruction", "SIGILL in ADD in canonical-1"),
        ("bad address", "SIGSEGV in ADD in canonical-1"),
        ("wrong bits", "ADD in canonical-1: 111 of 111 of y differ from the oracle"),
    ],
)
def test_faulty_library_is_reported_and_the_next_level_is_used(
    tmp_path: Path, good_library: bytes, fault: str, problem: str
) -> None:
    builds = CompiledLibraries(native=faulty_library(fault), x86_64_v3=good_library)
    output: list[str] = []
    result = choose_library(tmp_path, builds, report=output.append)
    note = f"the native build failed its self-test ({problem})"
    assert (result.level, result.notes) == (NEXT, (note,))
    assert note in output
    assert result.address("add")


@pytest.mark.rest
def test_library_without_a_kernel_fails_the_self_test(good_library: bytes) -> None:
    assert "undefined symbol: zrt_" in library.run_self_test(good_library)


@pytest.mark.rest
def test_invalid_library_file_is_reported(tmp_path: Path, good_library: bytes) -> None:
    result = choose_library(
        tmp_path, CompiledLibraries(native=good_library[: len(good_library) // 2], x86_64_v3=good_library)
    )
    assert result.level == NEXT
    assert "the native build failed its self-test (" in result.notes[0]


@pytest.mark.rest
def test_failed_builds_are_not_retried_and_good_builds_are_cached(tmp_path: Path, good_library: bytes) -> None:
    builds = CompiledLibraries(native=faulty_library("bad instruction"), x86_64_v3=good_library)
    first, second = choose_library(tmp_path, builds), choose_library(tmp_path, builds)
    assert builds.made == [BEST, NEXT]
    assert second.notes == first.notes
    assert (first.cached, second.cached) == (False, True)


def test_cached_library_is_tested_again_when_the_oracle_changed(
    tmp_path: Path, good_library: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, tested = CompiledLibraries(native=good_library), 0

    def choose(problem: str = "") -> Library:
        def count_test(content: bytes) -> str:
            nonlocal tested
            tested += 1
            return problem

        return select_library(ObjectCache(tmp_path / "cache"), USING, (BEST,), compile=builds, check=count_test)

    choose()
    assert choose().cached and tested == 1
    monkeypatch.setattr(library, "digest_oracle", lambda: "another oracle")
    assert choose().cached and tested == 2 and builds.made == [BEST]
    monkeypatch.setattr(library, "digest_oracle", lambda: "a third")
    with pytest.raises(UnsupportedError, match="ADD differs"):
        choose("ADD differs")


@pytest.mark.parametrize("kept_files", [0, 30, 1000])
def test_incomplete_cache_entry_is_rebuilt(tmp_path: Path, good_library: bytes, kept_files: int) -> None:
    builds = CompiledLibraries(native=good_library)
    choose_library(tmp_path, builds)
    entry = find_cached_library(tmp_path)
    data = entry.read_bytes()
    entry.write_bytes(data[:kept_files])
    assert choose_library(tmp_path, builds).level == BEST
    assert builds.made == [BEST, BEST]
    assert entry.read_bytes() == data


def test_changed_byte_in_the_cache_is_detected(tmp_path: Path, good_library: bytes) -> None:
    builds = CompiledLibraries(native=good_library)
    choose_library(tmp_path, builds)
    entry = find_cached_library(tmp_path)
    whole = bytearray(entry.read_bytes())
    whole[len(whole) // 2] ^= 1
    entry.write_bytes(whole)
    choose_library(tmp_path, builds)
    assert builds.made == [BEST, BEST]


def test_unwritable_cache_is_not_an_error(tmp_path: Path, good_library: bytes) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    builds = CompiledLibraries(native=good_library)
    for _ in range(2):
        result = choose_library(tmp_path, builds)
        assert (result.level, result.cached) == (BEST, False)
    assert builds.made == [BEST, BEST]


@pytest.mark.rest
def test_every_reason_is_reported_when_no_level_works(tmp_path: Path) -> None:
    builds = CompiledLibraries(
        native=faulty_library("bad instruction"),
        x86_64_v3=UnsupportedError("the C compiler failed to compile the kernels (x86_64_v3):\nsomething"),
        x86_64_v2=faulty_library("wrong bits"),
    )
    with pytest.raises(UnsupportedError) as caught:
        choose_library(tmp_path, builds)
    text = str(caught.value)
    assert text.startswith("no native kernels: the native build failed its self-test (SIGILL in ADD")
    assert "the C compiler failed to compile the kernels (x86_64_v3)" in text
    assert "the x86_64_v2 build failed its self-test (ADD in canonical-1: 111 of 111 of y differ" in text


@pytest.mark.rest
def test_identical_build_failures_do_not_blame_the_compiler(tmp_path: Path) -> None:
    wrong = faulty_library("wrong bits")
    with pytest.raises(UnsupportedError) as caught:
        choose_library(tmp_path, CompiledLibraries(native=wrong, x86_64_v3=wrong, x86_64_v2=wrong))
    text = str(caught.value)
    assert (
        "every build (native, x86_64_v3, x86_64_v2) failed its self-test in the same way (ADD in canonical-1: "
        in text
    )
    assert "either the oracle (to be checked against the goldens) or the kernel's C source is wrong" in text
    assert text.endswith("next: zinc-rt validate --tiers t_cpu")


def test_only_one_of_two_processes_compiles(tmp_path: Path, good_library: bytes) -> None:
    (tmp_path / "good.so").write_bytes(good_library)
    script = f"""
import sys, time
from pathlib import Path
from zinc_rt.backends.cpu.library import select_library
from zinc_rt.kernels.native.build import Compiler
from zinc_rt.host.object_cache import ObjectCache

folder = Path({str(tmp_path)!r})

def compile(using, level):
    with (folder / "made").open("a") as file:
        file.write(level)
    time.sleep(0.3)
    return (folder / "good.so").read_bytes()

cache, using = ObjectCache(folder / "cache"), Compiler((), "tests")
print(select_library(cache, using, ("native",), compile=compile, check=lambda content: "").cached)
"""
    command = [sys.executable, "-c", script]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [child.communicate(timeout=120)[0].strip() for child in children]
    assert sorted(answers) == ["False", "True"]
    assert (tmp_path / "made").read_text() == "native"


def test_missing_compiler_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    build.find_compiler.cache_clear()
    try:
        with pytest.raises(
            UnsupportedError, match="no C compiler: the package ziglang is not installed"
        ) as caught:
            build.find_compiler()
    finally:
        build.find_compiler.cache_clear()
    assert "pip install 'zinc-rt[native]'" in str(caught.value)


def write_compiler(folder: Path, script: str) -> str:
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for a compiler")
def test_compiler_other_than_clang_is_rejected(tmp_path: Path) -> None:
    gcc = write_compiler(tmp_path, "echo 'gcc (GCC) 14.2.0'")
    with pytest.raises(UnsupportedError, match=r"not clang: gcc \(GCC\) 14\.2\.0") as caught:
        build.find_compiler(gcc)
    assert f"ZINC_RT_CC={gcc}" in str(caught.value)
    assert "next: set it to clang" in str(caught.value)


@pytest.mark.parametrize("program", ["/no/such/clang", "no-such-clang"])
def test_missing_compiler_is_rejected(program: str) -> None:
    with pytest.raises(UnsupportedError, match=f"ZINC_RT_CC={program}"):
        build.find_compiler(program)


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for a compiler")
def test_compiler_error_for_rejected_source_is_quoted(tmp_path: Path) -> None:
    broken = write_compiler(
        tmp_path, 'case "$1" in --version) echo "clang version 19.1";; *) echo "bad news" >&2; exit 1;; esac'
    )
    using = build.find_compiler(broken)
    assert using.version == "clang version 19.1"
    with pytest.raises(UnsupportedError, match=r"(?s)the C compiler failed to compile the kernels.*bad news"):
        build.compile_library(using, "native")


def test_machine_without_kernels_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnsupportedError, match="no native kernels for riscv64"):
        build.list_levels()


@pytest.mark.rest
def test_library_reports_its_build_configuration() -> None:
    find_compiler()
    result = library.build_library()
    assert result.level in build.list_levels()
    assert result.compiler == find_compiler().version
