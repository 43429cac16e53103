"""Emitted programs: each of many failures shows with nothing of ours installed but the simulated device."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feed_forward import INPUT, feed_forward_log
from planted import flip_bit

from zinc_rt.backends.amd import executable_builder
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.backends.base import Backend
from zinc_rt.host.errors import UsageError
from zinc_rt.kernels import sets
from zinc_rt.kernels.sets import BinaryKernelSet, find_kernel_set
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.lower import Call, LoweredGraph
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, DispatchIndirect, SetShReg
from zinc_rt.pm4.registers import Sh
from zinc_rt.replay import standalone
from zinc_rt.replay.capture import StepCapture, capture_step, choose_step
from zinc_rt.replay.command import main
from zinc_rt.replay.standalone import emit_program, find_nonzero_runs
from zinc_rt.sim.serve.client import SimClient
from zinc_rt.trace.records import FaultRecord
from zinc_rt.trace.tape import RecordedStep, Tape

pytestmark = pytest.mark.skipif(find_kernel_set("gfx1201") is None, reason="no gfx1201 kernels in this build")

Plant = Callable[[pytest.MonkeyPatch, Any], None]
TITLE = "feed-forward, step 0"


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One served device for all: its socket."""
    child, path = serve(tmp_path_factory.mktemp("device") / "gpu.sock", "--time-scale", "0.1")
    yield path
    child.send_signal(signal.SIGKILL)  # waves of an endless loop may still run
    child.wait(10)
    assert child.stdout is not None
    child.stdout.close()


def serve(path: Path, *options: str) -> tuple[subprocess.Popen[str], Path]:
    words = [sys.executable, "-m", "zinc_rt.cli", "sim", "--socket", str(path), "--stay", *options]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and json.loads(child.stdout.readline()) == {"ready": str(path)}
    return child, path


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return feed_forward_log(tmp_path_factory.mktemp("log") / "a.zlog")


def captured(
    log: Path, device: Path, tier: str = "t1", plant: Plant | None = None, kernels: BinaryKernelSet | None = None
) -> StepCapture:
    """The log's step as the tier would submit it, with one error."""

    def open_on_device(ordering: str) -> Backend:
        client = SimClient(device)
        opening = {"t1": open_t1, "t2": open_t2}[tier]
        backend = opening(
            client,
            # debug would refuse most of what is planted
            AmdOptions(ordering, kernels or find_kernel_set("gfx1201"), hang_folder=None, debug=False),
            after=client.close_all,
        )
        if plant is not None:
            plant(patch, backend)
        return backend

    with pytest.MonkeyPatch.context() as patch:
        return capture_step(log, open_on_device)


def run_program(program: list[str], device: Path | None) -> tuple[int, str]:
    environment = {} if device is None else {"ZINC_SIM_SOCKET": str(device)}
    result = subprocess.run(
        program, env=environment, capture_output=True, text=True, cwd="/", timeout=60, check=False
    )
    assert not result.stderr, result.stderr
    return result.returncode, result.stdout


COMPILER = ["gcc"] if shutil.which("gcc") else [sys.executable, "-m", "ziglang", "cc"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-std=gnu11"]


def compile_case(case: StepCapture, path: Path) -> Path:
    emit_program(case, path, log="a.zlog")
    return compile_c(path)


def compile_c(path: Path) -> Path:
    program = path.with_suffix("")
    subprocess.run([*COMPILER, "-O1", *WARNINGS, str(path), "-o", str(program)], check=True, timeout=120)
    return program


def run_emitted(case: StepCapture, path: Path, device: Path | None, *options: str) -> tuple[int, str]:
    return run_program([str(compile_case(case, path)), *options], device)


# --- what can be wrong --------------------------------------------------------------------------------------


def change_kernel(name: str, change: Callable[[Zrt], Zrt]) -> BinaryKernelSet:
    real = find_kernel_set("gfx1201")
    assert isinstance(real, BinaryKernelSet)

    def load_changed(wanted: str) -> Zrt:
        return change(real.load(wanted)) if wanted == name else real.load(wanted)

    return replace(real, load=load_changed)


def change_first_dwords(*words: int) -> Callable[[Zrt], Zrt]:
    return lambda zrt: replace(zrt, code=np.array(words, "<u4").tobytes() + zrt.code[4 * len(words) :])


def change_operation(zrt: Zrt) -> Zrt:
    """Flip one bit of the first v_mul_f32, which becomes v_mul_i32_i24."""
    words = np.frombuffer(zrt.code, "<u4").copy()
    first = next(index for index, word in enumerate(words) if word >> 25 == 8)  # VOP2 opcode 8
    words[first] ^= 1 << 25
    return replace(zrt, code=words.tobytes())


def drop_barriers(patch: pytest.MonkeyPatch, backend: Any) -> None:
    build = backend.build

    def build_without_barrier(program: LoweredGraph, buffers: Any) -> Any:
        steps = tuple(step for step in program.steps if isinstance(step, Call))
        return build(replace(program, steps=steps), buffers)

    patch.setattr(backend, "build", build_without_barrier)


def change_packets(change: Callable[[list[Any]], list[Any]]) -> Plant:
    def plant_fault(patch: pytest.MonkeyPatch, backend: Any) -> None:
        real = executable_builder.command_stream.build_packets

        def change_content(*arguments: Any) -> PacketList:
            result = real(*arguments)
            return PacketList(tuple(change(list(result.packets))), result.name)

        patch.setattr(executable_builder.command_stream, "build_packets", change_content)

    return plant_fault


def drop_cache_operation(packets: list[Any]) -> list[Any]:
    return [packet for packet in packets if not isinstance(packet, AcquireMem)]


def shrink_grid(packets: list[Any]) -> list[Any]:
    """Convert indirect dispatches to direct ones with one workgroup."""
    return [
        DispatchDirect(1, 1, 1, packet.initiator) if isinstance(packet, DispatchIndirect) else packet
        for packet in packets
    ]


def move_arguments_after_dispatch(packets: list[Any]) -> list[Any]:
    """Move the last dispatch before the registers that point to its arguments."""
    index = max(
        i for i, item in enumerate(packets) if isinstance(item, SetShReg) and item.register == Sh.USER_DATA_0
    )
    packets[index], packets[index + 1] = packets[index + 1], packets[index]
    return packets


def change_kernarg(change: Callable[[list[int]], list[int]]) -> Plant:
    """The pointers that swiglu gets."""

    def plant_fault(patch: pytest.MonkeyPatch, backend: Any) -> None:
        real = executable_builder.plan_block.build_content

        def change_content(plan: Any, *arguments: Any) -> bytes:
            image = bytearray(real(plan, *arguments))
            (step,) = [dispatch for dispatch in plan.dispatches if dispatch.launch.kernel == "swiglu"]
            offset = step.arguments_offset - plan.specs_offset
            count = len(step.launch.buffers)
            pointers = np.frombuffer(image, "<u8", count, offset).tolist()
            image[offset : offset + 8 * count] = np.array(change(pointers), "<u8").tobytes()
            return bytes(image)

        patch.setattr(executable_builder.plan_block, "build_content", change_content)

    return plant_fault


def change_weight(patch: pytest.MonkeyPatch, backend: Any) -> None:
    flipped = flip_bit("model.ffn.down_weight[0]", 40, 1).resident
    upload = backend.upload
    patch.setattr(backend, "upload", lambda weights, constants: upload(flipped(dict(weights)), constants))


def write_nan(patch: pytest.MonkeyPatch, backend: Any) -> None:
    write = backend.write

    def change_content(buffer: Any, offset: int, data: memoryview) -> None:
        content = bytearray(data)
        if len(content) == 5 * 256 * 4:
            content[2052:2056] = b"\0\0\xc0\x7f"
        write(buffer, offset, memoryview(content))

    patch.setattr(backend, "write", change_content)


S_BRANCH_TO_ITSELF, ILLEGAL, S_TRAP = 0xBFA0FFFF, 0xFFFFFFFF, 0xBF900002
FAILURES: dict[str, tuple[int, str, Plant | None, BinaryKernelSet | None]] = {
    "wrong-instruction": (1, "differs   act.ffn_out[0]", None, change_kernel("swiglu", change_operation)),
    "missing-barrier": (1, "found by the simulated device: missing-barrier", drop_barriers, None),
    "missing-cache-operation": (1, "missing-cache-op", change_packets(drop_cache_operation), None),
    "wrong-grid": (1, "differs   act.ffn_out[0]", change_packets(shrink_grid), None),
    "wrong-packet-order": (2, "GPU page fault at 0 ", change_packets(move_arguments_after_dispatch), None),
    "swapped-arguments": (1, "differs   act.ffn_out[0]", change_kernarg(lambda p: [p[1], p[0], *p[2:]]), None),
    "wrong-weight-byte": (1, "differs   act.ffn_out[0]", change_weight, None),
    "nan-input": (1, "nan (0x", write_nan, None),
    "page-fault": (2, "GPU page fault at 0x", change_kernarg(lambda p: [0x30_0000_0000, *p[1:]]), None),
    "endless-loop": (
        2,
        "does not end within",
        None,
        change_kernel("swiglu", change_first_dwords(S_BRANCH_TO_ITSELF)),
    ),
    "illegal-instruction": (2, "illegal", None, change_kernel("swiglu", change_first_dwords(ILLEGAL))),
    "trap": (2, "does not end", None, change_kernel("swiglu", change_first_dwords(S_TRAP))),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.rest
@pytest.mark.slow(keep=5)
def test_repro_program_shows_each_failure(failure: str, log_path: Path, device: Path, tmp_path: Path) -> None:
    code, output, plant, kernels = FAILURES[failure]
    case = captured(log_path, device, plant=plant, kernels=kernels)
    assert (got := run_emitted(case, tmp_path / "case.c", device, "1"))[0] == code, got
    assert output in got[1]


@pytest.mark.rest
def test_small_bar_falls_back_to_host_memory_with_message(log_path: Path, device: Path, tmp_path: Path) -> None:
    case = captured(log_path, device)
    child, path = serve(tmp_path / "small.sock", "--inject", "small-bar")
    try:
        code, output = run_emitted(case, tmp_path / "case.c", path)
        assert code == 0 and output.count("host memory instead") == 2, (
            output
        )  # the outputs and the indirect buffer
    finally:
        child.terminate()
        child.wait(10)
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.rest
def test_kernel_without_user_queues_is_reported(log_path: Path, device: Path, tmp_path: Path) -> None:
    case = captured(log_path, device, "t2")
    child, path = serve(tmp_path / "old.sock", "--linux", "6.12")
    try:
        code, output = run_emitted(case, tmp_path / "case.c", path)
    finally:
        child.terminate()
        child.wait(10)
        assert child.stdout is not None
        child.stdout.close()
    assert code == 2 and "this kernel offers no user queues for compute: Linux 6.16 or newer" in output


def test_program_uses_only_ioctls_of_the_driver_tables() -> None:
    """The program has literal numbers, the tree one table of structs: they must not drift apart."""
    known = {ioctl.request for ioctl in {**kfd.IOCTLS, **drm.IOCTLS, **amdgpu.IOCTLS}.values()}
    text = files("zinc_rt.replay").joinpath("standalone_template.c").read_text()
    used = {int(number, 16) for number in re.findall(r"\b0x[0-9a-fA-F]{8}\b", text)}
    calls = {number for number in used if number >> 8 & 0xFF in (ord("K"), ord("d"))}
    assert len(calls) == 13 and calls <= known


@pytest.mark.rest
def test_finding_is_reproduced_on_every_run(log_path: Path, device: Path, tmp_path: Path) -> None:
    """The device remembers what it found; a second run must not take that for its own past."""
    case = captured(log_path, device, plant=drop_barriers)
    assert [run_emitted(case, tmp_path / "case.c", device)[0] for _ in range(2)] == [1, 1]
    assert run_emitted(captured(log_path, device), tmp_path / "right.c", device)[0] == 0


@pytest.mark.rest
@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_correct_step_passes_standalone(tier: str, log_path: Path, device: Path, tmp_path: Path) -> None:
    code, output = run_emitted(captured(log_path, device, tier), tmp_path / "case.c", device)
    assert (code, output.splitlines()) == (
        0,
        ["bit-exact act.ffn_out[0], 1280 elements", f"BIT-EXACT {TITLE}: 1 outputs as expected"],
    )
    assert not list(tmp_path.glob("*.part"))


def test_user_queues_report_the_page_fault_address(log_path: Path, device: Path, tmp_path: Path) -> None:
    case = captured(log_path, device, "t2", change_kernarg(lambda p: [0x30_0000_0000, *p[1:]]))
    code, output = run_emitted(case, tmp_path / "case.c", device, "1")
    assert code == 2 and "GPU page fault at 0x3000000000" in output


def test_missing_gpu_is_reported(log_path: Path, device: Path, tmp_path: Path) -> None:
    code, output = run_emitted(captured(log_path, device), tmp_path / "case.c", None)
    assert code == 2 and output.startswith("UNUSABLE  ") and "amdgpu" in output


def test_generated_file_documents_its_case(log_path: Path, device: Path, tmp_path: Path) -> None:
    emit_program(captured(log_path, device), tmp_path / "case.c", log=log_path, command="zinc-rt-replay a.zlog")
    head = (tmp_path / "case.c").read_text().partition("#define")[0]
    for wanted in (
        "cc -O1 case.c -o repro",
        "gfx1201",
        "kernel 7.0.0",
        "MEC 2680",
        "swiglu",
        "INDIRECT_BUFFER",
        "DISPATCH_",
    ):
        assert wanted in head, wanted
    assert head.count("/*") == head.count("*/") == 1 and head.startswith("/*"), "a comment, whatever the log holds"


# --- the command --------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_command_writes_program_next_to_the_log(
    log_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.c"
    assert main([str(log_path), "--tiers", "t1", "--device", "sim", "--emit-repro", str(path)]) == 0
    output = capsys.readouterr().out
    assert f"run       cc -O1 {path} -o" in output and output.splitlines()[-1].startswith("PASS")
    compile_c(path)


@pytest.mark.rest
def test_bisected_node_is_emitted_as_a_program(
    log_path: Path, device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = change_kernel("swiglu", change_operation)
    monkeypatch.setattr(sets, "find_kernel_set", lambda arch: planted)
    words = ["--tiers", "t1", "--device", "sim", "--bisect", "--emit-repro", str(tmp_path / "found")]
    assert main([str(log_path), *words]) == 1
    assert {path.name for path in (tmp_path / "found").iterdir()} == {
        "node.zlog",
        "test_node.py",
        "repro.c",
    }
    code, output = run_program([str(compile_c(tmp_path / "found" / "repro.c"))], device)
    assert code == 1 and "differs   act.ffn_swiglu[0]" in output, output


@pytest.mark.parametrize(
    ("name", "tier", "wanted"),
    [
        ("case.py", "t1", "ends in .c"),
        ("case", "t1", "add --bisect"),
        ("case.c", "t_cpu", "submits no packets"),
        ("no/such/folder/case.c", "t1", "the folder"),
        ("case.c", "t1,t2", "accepts only one tier"),
    ],
)
def test_unsupported_case_prints_one_line(
    name: str, tier: str, wanted: str, log_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(log_path), "--tiers", tier, "--emit-repro", str(tmp_path / name)]) == 2
    assert wanted in capsys.readouterr().err and not list(tmp_path.glob("case*"))


def test_large_step_must_be_bisected_first(log_path: Path, device: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(standalone, "LIMIT_BYTES", 1000)
    with pytest.raises(UsageError, match=r"zinc-rt replay \S+ --tiers t1 --bisect --emit-repro FOLDER"):
        emit_program(captured(log_path, device), tmp_path / "case.c", log=log_path)


@pytest.mark.parametrize(
    "content", [b"", bytes(9000), b"x", bytes(4096) + b"x" * 5000 + bytes(9000) + b"y", b"z" * 4096]
)
def test_runs_cover_all_nonzero_bytes(content: bytes) -> None:
    back = bytearray(len(content))
    for offset, data in find_nonzero_runs(content):
        back[offset : offset + len(data)] = data
    assert bytes(back) == content


def test_unfinished_step_is_selected_else_the_last() -> None:
    steps = [RecordedStep(number, 0, (1, 1, 1), "main", (1, 1, 1, 0), 0.0, []) for number in range(3)]
    assert choose_step(Tape({}, steps=steps)) == 2
    assert (
        choose_step(
            Tape({}, steps=steps, faults=[FaultRecord(1, "hang", "", 0.0), FaultRecord(2, "lost", "", 0.0)])
        )
        == 1
    )
    assert choose_step(Tape({}, steps=steps, faults=[FaultRecord(-1, "before any step", "", 0.0)])) == 2


@pytest.mark.rest
def test_node_reads_the_inputs_from_the_log(log_path: Path, device: Path) -> None:
    """A case that leaves the input out would compare zeros with zeros."""
    case = captured(log_path, device)
    (output,) = case.expected
    assert any(name == INPUT for _, _, name in case.names) and np.frombuffer(output.content, np.float32).any()
