"""Programs that know nothing of the simulated device: compiled here, run by `zinc-rt sim -- PROGRAM`."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from zinc_rt.cli.sim import describe_faults, main
from zinc_rt.host.errors import NothingRan
from zinc_rt.sim.serve import program
from zinc_rt.sim.serve.remote_memory import LaunchTable

CLIENTS = Path(__file__).parent / "clients"
NODE = "/sys/class/kfd/kfd/topology/nodes/1"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")


@needs_cc
def test_program_using_raw_kfd_ioctls_runs_unchanged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Memory, PM4, a fence, USERPTR, threads, fork, dup: it prints the line that failed."""
    result = tmp_path / "raw_kfd"
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(result), "-pthread"], check=True)
    assert main(["--", str(result)]) == 0
    assert "OK" in capfd.readouterr().out


@pytest.mark.rest
@needs_cc
def test_system_calls_are_intercepted_or_reported_as_unsupported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It prints the line that failed; what is not covered is named on stderr."""
    result = tmp_path / "system_calls"
    words = ["cc", "-O1", "-w", str(CLIENTS / "system_calls.c"), "-o", str(result), "-pthread", "-ldl"]
    subprocess.run(words, check=True)
    assert main(["--", str(result)]) == 0
    output = capfd.readouterr()
    assert output.out == "OK\n"
    assert "SCM_RIGHTS" in output.err and "mremap()" in output.err


@pytest.mark.rest
@needs_cc
def test_report_has_exit_code_findings_by_rule_and_kernel_log(tmp_path: Path) -> None:
    result, report = tmp_path / "raw_kfd", tmp_path / "report.json"
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(result), "-pthread"], check=True)
    assert main(["--json", str(report), "--linux", "6.16", "--", "sh", "-c", f"{result}; exit 5"]) == 5
    document = json.loads(report.read_text())
    assert (
        document["command"] == "sim" and document["device"]["simulated"] and document["device"]["kernel"] == "6.16"
    )
    assert document["details"]["exit_code"] == 5 and document["results"][0]["status"] == "fail"
    assert {"findings", "dmesg"} <= set(document["details"])
    assert main(["--json", str(report)]) == 2


@pytest.mark.rest
@needs_cc
@pytest.mark.parametrize(
    ("inject", "reaction"),
    [
        ("out-of-memory@2", r"1 x AMDKFD_IOC_ALLOC_MEMORY_OF_GPU ENOMEM; it ended with exit code 1"),
        ("device-lost@1", r"it ended with exit code 1"),
        ("vm-busy@99", ""),
    ],
)
def test_report_has_the_reaction_of_a_program_to_a_fault(
    inject: str, reaction: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result, report = tmp_path / "raw_kfd", tmp_path / "report.json"
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(result), "-pthread"], check=True)
    name = inject.partition("@")[0]
    assert main(["--inject", inject, "--json", str(report), "--", str(result)]) == bool(reaction)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("zinc-rt sim: ")]
    injected = json.loads(report.read_text())["details"]["injected"]
    assert [row["name"] for row in injected["faults"]] == [name]
    if reaction:
        assert f"injected {name} (" in lines[0] and lines[0].endswith(": occurred once")
        assert re.search(reaction, lines[1]) and injected["seconds"] > 0
    else:
        assert lines[-1].endswith(": did not occur") and injected["seconds"] is None


def test_reaction_names_the_signal_that_ended_the_program() -> None:
    fault = {"name": "hung-queue", "does": "a queue hangs", "occurred": 2}
    injected = {"faults": [fault], "calls": 3, "doorbells": 1, "errors": [], "seconds": 1.25}
    assert describe_faults(injected, 134) == [
        "zinc-rt sim: injected hung-queue (a queue hangs): occurred 2 times",
        "zinc-rt sim: then the program made 3 calls and 1 doorbells in 1.2 s, none failed; signal 6 ended it",
    ]


RUNTIME = """
#include <stdlib.h>
static size_t last;
int hipMalloc(void **to, size_t size) { *to = malloc(last = size); return *to ? 0 : 2; }
int hipFree(void *at) { free(at); return 0; }
int hipMemGetAddressRange(void **base, size_t *size, void *at) { *base = at; *size = last; return 0; }
size_t asked(void) { return last; }
"""
ALLOCATES = """
#include <stddef.h>
#include <stdio.h>
int hipMalloc(void **, size_t);
int hipFree(void *);
int hipMemGetAddressRange(void **, size_t *, void *);
size_t asked(void);
int main(void) {
  void *at, *base; size_t size;
  hipMalloc(&at, 100);
  hipMemGetAddressRange(&base, &size, at);
  printf("%zu %zu %d %d\\n", asked(), size, base == at, hipFree(at));
}
"""


@needs_cc
@pytest.mark.rest
def test_hip_allocations_get_a_red_zone_that_the_program_does_not_see(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("runtime.c", RUNTIME), ("program.c", ALLOCATES)):
        (tmp_path / name).write_text(text)
    runtime, built = tmp_path / "libruntime.so", tmp_path / "program"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", runtime, tmp_path / "runtime.c"], check=True)
    subprocess.run(["cc", "-o", built, tmp_path / "program.c", runtime, f"-Wl,-rpath,{tmp_path}"], check=True)
    assert main(["--", str(built)]) == 0
    assert capfd.readouterr().out == "4196 100 1 0\n"


@needs_cc
@pytest.mark.rest
def test_code_addresses_get_file_and_line(tmp_path: Path) -> None:
    if shutil.which("addr2line") is None or shutil.which("nm") is None:
        pytest.skip("no addr2line or nm (binutils)")
    source, built = tmp_path / "made.c", tmp_path / "made"
    source.write_text("int twice(int x) {\n  return 2 * x;\n}\nint main(void) { return twice(0); }\n")
    subprocess.run(["cc", "-g", "-O0", source, "-o", built], check=True)
    table = subprocess.run(["nm", built], capture_output=True, text=True, check=True).stdout
    address = next(int(line.split()[0], 16) for line in table.splitlines() if line.endswith(" T twice"))
    place = f"made+0x{address + 1:x}"
    sentence = f"past the end of hipMalloc of 4 bytes at {place} (twice+0x1) from {place}, not at other+0x1"
    expected = f"bytes at made.c:1 ({place}) (twice+0x1) from made.c:1 ({place}), not at other+0x1"
    assert program.AddressNames(["sh", str(built)]).add_to(sentence).endswith(expected)


QUEUE_RUNTIME = """
#include <stdint.h>
static uint64_t next;
uint64_t hsa_queue_add_write_index_relaxed(const void *queue, uint64_t count) {
  return __atomic_fetch_add(&next, count, __ATOMIC_RELAXED);
}
"""


@needs_cc
@pytest.mark.rest
def test_finding_names_the_launches_by_file_and_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if shutil.which("addr2line") is None:
        pytest.skip("no addr2line (binutils)")
    (tmp_path / "runtime.c").write_text(QUEUE_RUNTIME)
    runtime, built, scenarios = tmp_path / "libruntime.so", tmp_path / "launches", CLIENTS / "scenarios"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", runtime, tmp_path / "runtime.c"], check=True)
    source = CLIENTS / "launches.c"
    sources = [source, scenarios / "kfd.c", scenarios / "work.c"]
    options = ["-g", "-O1", "-DBARRIER_BIT=0", f"-I{scenarios}", "-pthread"]
    subprocess.run(["cc", *options, *sources, runtime, "-o", built], check=True)
    assert main(["--sanitizer", "full", "--", str(built)]) == 0
    output = capfd.readouterr()
    lines = enumerate(source.read_text().splitlines(), 1)
    first, second = (number for number, line in lines if line.endswith(" launch"))
    assert output.out == "OK\n" and "1 x missing-barrier: WAW" in output.err
    later, _, earlier = output.err.partition(" runs while ")
    assert f"launched at launches.c:{second} (" in later and f"launched at launches.c:{first} (" in earlier


def test_launch_is_unknown_if_its_row_was_overwritten_or_its_process_ended() -> None:
    rows = ctypes.create_string_buffer(struct.pack("<QQ48s", 64 * 5, 7, b"program+0x10\0rest"), 64)
    table = LaunchTable(os.getpid(), ctypes.addressof(rows), 1, 64)
    assert table.find(64 * 5, 7) == "program+0x10"
    assert table.find(64 * 5, 8) == "" and table.find(64 * 6, 7) == ""
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert LaunchTable(ended.pid, ctypes.addressof(rows), 1, 64).find(64 * 5, 7) == ""


@pytest.mark.rest
@needs_cc
def test_file_contents_are_generated_at_open(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    used = "/sys/class/drm/renderD128/device/mem_info_gtt_used"
    assert main(["--inject", "hidden-gpu", "--", "sh", "-c", f"cat {used} {NODE}/gpu_id"]) == 1
    output = capfd.readouterr()
    assert output.out.strip().isdigit() and "not permitted" in output.err


@pytest.mark.rest
@needs_cc
def test_exit_code_of_the_program_is_returned(tmp_path: Path) -> None:
    script = "cat /sys/class/kfd/kfd/topology/nodes/1/gpu_id && exit 7"
    assert main(["--", "sh", "-c", script]) == 7
    assert main(["--", "sh", "-c", "exit 5", "x" * 5000]) == 5  # a word that no file can have as its name
    assert main(["--", str(tmp_path / "missing")]) == 2


def test_missing_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program.shutil, "which", lambda name: None)
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    with pytest.raises(NothingRan, match="no C compiler"):
        program.build_library()
