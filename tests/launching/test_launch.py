"""`zinc-rt launch`: kernels that clang compiled, in one process and by command, healthy and faulty."""

from __future__ import annotations

import inspect
import itertools
import json
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from code_objects import TARGETS, build, code_object

import zinc_rt
from zinc_rt.cli.launch import main
from zinc_rt.host.errors import InputError, UnsupportedError, UsageError
from zinc_rt.isa.rows import make_rows
from zinc_rt.kernels.assemble import is_available
from zinc_rt.kernels.remarks import UNMARKED
from zinc_rt.launching.code_files import read_image
from zinc_rt.launching.code_object import read_code_object
from zinc_rt.launching.kernarg import LaunchShape, match, pack
from zinc_rt.launching.launch import LaunchStopped
from zinc_rt.launching.msgpack import unpack
from zinc_rt.launching.values import Lds, inout, out, parse

SIZE = 1000


def run(kernel: str, name: str = "gfx1201_32", **more: Any) -> Any:
    return zinc_rt.launch(code_object(name), kernel, device="sim", sanitizer="full", **more)


@pytest.mark.rest
@pytest.mark.parametrize("wave", [32, 64])
def test_saxpy_matches_numpy(wave: int) -> None:
    x, y = np.random.default_rng(7).standard_normal((2, SIZE)).astype(np.float32)
    args = {"y": inout(y), "x": x, "a": np.float32(3), "n": np.int32(SIZE)}
    result = run("saxpy", f"gfx1201_{wave}", grid=4, block=256, args=args)
    exact = (3 * x.astype(np.float64) + y).astype(np.float32)
    assert np.array_equal(result.outputs["y"], exact), "one fused multiply-add, rounded once"
    assert result.findings == ()
    assert result.device["simulated"]


@pytest.mark.rest
@pytest.mark.parametrize("wave", [32, 64])
def test_scratch_is_private_to_each_lane(wave: int) -> None:
    args = {"out": out(128, np.int32), "step": np.int32(3)}
    result = run("gather", f"gfx1201_{wave}", grid=2, block=64, args=args)
    steps = sum((k * 7 + 3) % 40 for k in range(0, 40, 2))
    assert np.array_equal(result.outputs["out"], np.arange(128) * steps)
    assert result.findings == ()


@pytest.mark.rest
def test_waits_unknown_to_the_compiler_are_remarks() -> None:
    """The SGPR read hazard, which LLVM knows from release 20 on."""
    data = code_object("gfx1201_32")
    waits = [index for index in range(0, len(data), 4) if data[index + 2 : index + 4] == b"\x88\xbf"]
    assert waits
    for index in waits:
        data = data[:index] + b"\0\0\x80\xbf" + data[index + 4 :]
    known = re.search(rb"clang version (\d\d)\.", data)
    assert known is not None and int(known[1]) >= 20
    old = data.replace(known[0], b"clang version 19.")
    unknown = data.replace(known[0], b"Linker: ".ljust(len(known[0])))
    assert read_code_object(unknown, "k.co").compiler == UNMARKED
    args = {"out": out(128, np.int32), "in": np.arange(128, dtype=np.int32)}
    for code, result in ((data, True), (old, False), (unknown, False)):
        done = zinc_rt.launch(code, "reverse", grid=2, block=64, args=args, device="sim", sanitizer="full")
        assert {finding.rule for finding in done.findings} == ({"sgpr-read"} if result else set())
        assert {remark.rule for remark in done.remarks} == (set() if result else {"sgpr-read"})


BARRIER, NOP = bytes.fromhex("c14e80be ffff94bf"), bytes.fromhex("000080bf")
REVERSE = {"out": out(128, np.int32), "in": np.arange(128, dtype=np.int32)}
RACY = {"off": set(), "fast": {"uninitialised-lds"}, "full": {"uninitialised-lds", "lds-race"}}


def replace_barrier(*instructions: bytes) -> bytes:
    """Return code whose loop that reverses has these instructions instead of its barrier."""
    data = code_object()
    assert data.count(BARRIER) >= 1 and sum(map(len, instructions)) == len(BARRIER)
    return data.replace(BARRIER, b"".join(instructions))


def rules_of(**options: Any) -> set[str]:
    """Return the rules of the findings in code without its barrier."""
    result = zinc_rt.launch(
        replace_barrier(NOP, NOP), "reverse", grid=2, block=64, args=REVERSE, device="sim", **options
    )
    return {finding.rule for finding in result.findings}


def test_second_launch_has_its_own_sanitizer_mode() -> None:
    assert rules_of(sanitizer="fast") == RACY["fast"]
    assert rules_of(sanitizer="full") == RACY["full"]


# Options that reach the device or the checks, with values other than the default, and the rules that they find
DEVICE_OPTIONS: dict[str, list[tuple[Any, set[str]]]] = {
    "sanitizer": [("off", RACY["off"]), ("fast", RACY["fast"])],
    "tools": [(["racecheck"], {"lds-race"}), (["memcheck"], set())],
    "coherence": [("caches", RACY["full"]), ("direct", RACY["full"])],
    "reorder": [(3, RACY["full"])],
    "perturb": [(5, RACY["full"])],
    "queue": [("aql", RACY["full"])],
    "times": [(2, RACY["full"])],
    "reverse_lanes": [(True, RACY["full"])],
}
# Those that say what is launched, in which order, and by whom; or how long to wait for it
OF_ONE_LAUNCH = {
    "code", "kernel", "grid", "block", "args", "device", "timeout_seconds", "lds_bytes", "arch", "flags",
    "reverse", "debugger",
}  # fmt: skip


def in_pairs(count: int) -> list[int]:
    """Return numbers below `count` in which each ordered pair occurs adjacently once."""
    order = []
    for first in range(count):
        order.append(first)
        for second in range(first + 1, count):
            order += [first, second]
    order.append(order[0])
    assert len(set(itertools.pairwise(order))) == count**2
    return order


def launch_report(**options: Any) -> tuple[Any, ...]:
    """Return the output of a launch of the code without its barrier, except times and addresses."""
    result = zinc_rt.launch(
        replace_barrier(NOP, NOP), "reverse", grid=2, block=64, args=REVERSE, device="sim", **options
    )
    findings = sorted(
        (finding.rule, finding.pc, finding.count, finding.wave, finding.lanes) for finding in result.findings
    )
    return findings, result.outputs["out"].tobytes(), result.executed, len(result.seconds)


def test_every_option_of_launch_is_in_the_test_of_pairs() -> None:
    assert inspect.signature(zinc_rt.launch).parameters.keys() == DEVICE_OPTIONS.keys() | OF_ONE_LAUNCH


@pytest.mark.rest
def test_every_pair_of_options_runs_each_as_alone() -> None:
    """One process, in an order with each ordered pair of options next to each other."""
    options: list[tuple[dict[str, Any], set[str]]] = [
        ({"sanitizer": "off"}, RACY["off"]),
        ({"sanitizer": "fast"}, RACY["fast"]),
        ({"sanitizer": "full"}, RACY["full"]),
        ({"sanitizer": "fast", "coherence": "caches"}, RACY["fast"]),
    ]
    for index in in_pairs(len(options)):
        argument, rules = options[index]
        assert rules_of(**argument) == rules, argument


@pytest.mark.slow
def test_every_pair_of_all_options_gives_the_same_as_alone() -> None:
    """Findings, outputs and executed instructions, which a process of its own gives for each."""
    options: list[dict[str, Any]] = [{}]
    options += [{name: value} for name, rows in DEVICE_OPTIONS.items() for value, _ in rows]
    expected = [RACY["full"], *(rules for rows in DEVICE_OPTIONS.values() for _, rules in rows)]
    context = multiprocessing.get_context("spawn")
    alone = []
    for option in options:
        with ProcessPoolExecutor(1, mp_context=context) as process:
            alone.append(process.submit(launch_report, **option).result())
    assert [{rule for rule, *_ in findings} for findings, *_ in alone] == expected
    for index in in_pairs(len(options)):
        assert launch_report(**options[index]) == alone[index], options[index]


@pytest.mark.rest
def test_full_is_the_default_mode_in_python() -> None:
    assert rules_of() == RACY["full"]


def test_illegal_instruction_ends_the_launch_at_once() -> None:
    with pytest.raises(LaunchStopped, match=r"illegal at pc 0x5c .*does not decode") as stop:
        zinc_rt.launch(replace_barrier(b"\xff" * 4, NOP), "reverse", grid=2, block=64, args=REVERSE, device="sim")
    [result] = [finding for finding in stop.value.findings if finding.rule == "illegal"]
    assert result.error and result.pc == 0x5C


def test_kernel_with_instructions_that_are_not_simulated_is_refused_before_the_launch() -> None:
    (opcode,) = [row.opcode for row in make_rows("scalar", "SOP1", 12).values() if row.mnemonic == "s_rfe_b64"]
    word = (0xBE800000 | opcode << 8).to_bytes(4, "little")
    with pytest.raises(UnsupportedError, match=r"does not support: s_rfe_b64 \(trap handlers\)"):
        zinc_rt.launch(replace_barrier(word, NOP), "reverse", grid=2, block=64, args=REVERSE, device="sim")


def test_unsimulated_instruction_of_a_simulated_encoding_is_refused_before_the_launch() -> None:
    word = bytes.fromhex("000080db00010201")
    with pytest.raises(
        UnsupportedError, match=r"does not support: ds_bvh_stack_push4_pop1_rtn_b32 \(ray tracing\)"
    ):
        zinc_rt.launch(replace_barrier(word), "reverse", grid=2, block=64, args=REVERSE, device="sim")


def test_elements_of_an_output_that_nothing_wrote_are_a_finding() -> None:
    values = np.arange(128, dtype=np.int32)
    bigger = {"out": out((5, 30), np.int32), "in": values}
    [result] = run("reverse", grid=2, block=64, args=bigger).findings
    assert result.rule == "unwritten-output"
    assert "22 of 150 elements were never written; the first is out[4, 8]" in result.first
    minus_one = {"out": out(128, np.int32), "in": np.full(128, -1, np.int32)}
    assert run("reverse", grid=2, block=64, args=minus_one).findings == ()


def test_reading_an_output_before_it_is_written_is_a_finding() -> None:
    args = {"out": out(128, np.int32), "in": out(128, np.int32)}
    rules = {finding.rule for finding in run("reverse", grid=2, block=64, args=args).findings}
    assert rules == {"uninitialised-memory", "unwritten-output"}


def test_relaunched_kernel_reports_its_findings_again() -> None:
    """More often than the device tells the same of one kernel."""
    args = {
        "y": inout(np.ones(10, np.float32)),
        "x": np.ones(10, np.float32),
        "a": np.float32(3),
        "n": np.int32(20),
    }
    rules = [{finding.rule for finding in run("saxpy", grid=1, block=32, args=args).findings} for _ in range(6)]
    assert rules == [{"out-of-bounds"}] * 6


@pytest.mark.rest
@pytest.mark.parametrize("wave", [32, 64])
def test_aql_queue_launches_the_same_way(wave: int) -> None:
    """Scratch by amd_queue_t, LDS and hidden arguments; three launches by one queue."""
    args = {"out": out(128, np.int32), "step": np.int32(3)}
    result = run("gather", f"gfx1201_{wave}", grid=2, block=64, args=args, queue="aql", times=3)
    steps = sum((k * 7 + 3) % 40 for k in range(0, 40, 2))
    assert np.array_equal(result.outputs["out"], np.arange(128) * steps)
    assert result.findings == () and len(result.seconds) == 3
    values = np.arange(128, dtype=np.int32)
    result = run(
        "reverse", f"gfx1201_{wave}", grid=2, block=64, args={"out": args["out"], "in": values}, queue="aql"
    )
    assert np.array_equal(result.outputs["out"], 2 * values.reshape(2, 64)[:, ::-1].reshape(-1))
    result = run(
        "shape", f"gfx1201_{wave}", grid=(2, 3, 4), block=(8, 4), args={"out": out(10, np.uint32)}, queue="aql"
    )
    assert result.outputs["out"].tolist() == [2, 3, 4, 8, 4, 1, 0, 0, 0, 3]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("kernel", ["near", "far"])
def test_calls_to_functions_before_the_kernel_work(kernel: str, wave: int) -> None:
    primes = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53], np.int32)

    def weigh_values(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
        return np.asarray(primes[np.asarray(a) & 15] * b - (np.asarray(a) >> 2))

    def weigh_twice(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
        return weigh_values(a, b) + 3 * weigh_values(b, a)

    i, n = np.arange(64), 21
    result = run(kernel, f"calls_{wave}", grid=1, block=64, args={"out": out(64, np.int32), "n": np.int32(n)})
    assert np.array_equal(
        result.outputs["out"], weigh_twice(i, n) + weigh_values(n, i) if kernel == "near" else weigh_twice(n, i)
    )
    assert result.findings == ()


def test_lds_static_and_dynamic() -> None:
    values = np.arange(128, dtype=np.int32)
    result = run("reverse", grid=2, block=64, args={"out": out(128, np.int32), "in": values})
    assert np.array_equal(result.outputs["out"], 2 * values.reshape(2, 64)[:, ::-1].reshape(-1))
    args = {"out": out(64, np.int32), "in": values[:64], "held": Lds(256)}
    result = run("rotate", grid=1, block=64, args=args)
    assert np.array_equal(result.outputs["out"], np.roll(values[:64], -1))


TURN = {"out": out(64, np.int32), "in": np.arange(64, dtype=np.int32)}


def test_dynamic_lds_follows_static_lds() -> None:
    result = run("turn", "launches_32", grid=1, block=64, args=TURN, lds_bytes=256)
    assert np.array_equal(result.outputs["out"], np.roll(np.arange(64), -1)) and result.findings == ()
    larger = {"out": out(256, np.int32), "in": np.arange(256, dtype=np.int32)}
    for size, rules in ((1024, set()), (0, {"lds-out-of-bounds"})):
        result = run("turn", "launches_32", grid=1, block=256, args=larger, lds_bytes=size)
        assert {finding.rule for finding in result.findings} == rules


def test_triton_metadata_gives_lds_workgroup_and_scratch(tmp_path: Path) -> None:
    code, about = tmp_path / "turn.hsaco", tmp_path / "turn.json"
    code.write_bytes(code_object("launches_32"))
    triton = {"triton_version": "3.9.0", "name": "turn", "shared": 260, "num_warps": 2, "warp_size": 32}
    about.write_text(json.dumps(triton))
    result = zinc_rt.launch(code, "turn", grid=1, args=TURN, device="sim")
    assert np.array_equal(result.outputs["out"], np.roll(np.arange(64), -1)) and result.findings == ()
    bias = {**triton, "name": "bias", "shared": 0, "num_warps": 1, "global_scratch_size": 0}
    for size, expected in (
        (0, 7),
        (64, 0),
    ):  # the second argument of `bias` as scratch: null, or 64 bytes a workgroup
        scratch = (size,)
        about.write_text(json.dumps(bias))
        image = read_image(code)
        kernel = replace(image.kernels["bias"], scratch_pointers=scratch)
        [_, (_, _, value)] = match(kernel, {"out": TURN["out"]}, workgroups=2)
        assert (value is None) == (expected == 7) and (value is None or value.array.nbytes == 128)
    about.write_text(json.dumps({**triton, "shared": "much"}))
    with pytest.raises(InputError, match=r"turn\.json: Triton's metadata"):
        zinc_rt.launch(code, "turn", grid=1, args=TURN, device="sim")


def test_stores_of_one_value_to_one_lds_word_are_remarks() -> None:
    for own, result, remarked in ((0, set(), {"lds-same-store"}), (1, {"lds-race"}, set())):
        args = {"out": out(64, np.int32), "own": np.int32(own)}
        done = run("replicate", "launches_32", grid=1, block=64, args=args)
        assert {finding.rule for finding in done.findings} == result
        assert {remark.rule for remark in done.remarks} == remarked
        assert all(finding.access == "store of LDS byte 0" for finding in (*done.findings, *done.remarks))


def test_null_pointer_and_missing_value() -> None:
    for value, expected in ((None, np.full(64, 7)), (TURN["in"], np.arange(64))):
        result = run("bias", "launches_32", grid=1, block=64, args={"out": TURN["out"], "in": value})
        assert np.array_equal(result.outputs["out"], expected) and result.findings == ()
    assert parse("p=null") == ("p", None)
    with pytest.raises(InputError, match="n is null"):
        run("saxpy", grid=1, block=64, args=SAXPY | {"n": None})


def test_all_hidden_arguments_of_code_object_version_5_are_set() -> None:
    args = {"out": out(64, np.uint32)}
    result = run("hidden", "launches_32", grid=(2, 3, 4), block=(64, 2), args=args)
    expected = np.zeros(64, np.uint32)
    expected[:5] = [2, 3, 4, 64 | 2 << 16, 1]
    expected[16] = 3  # dimensions
    assert np.array_equal(result.outputs["out"], expected) and result.findings == ()


def test_kernel_that_uses_one_axis_of_the_work_item_id_gets_only_that() -> None:
    """RSRC2.TIDIG_COMP_CNT is 0, and LLVM does not mask the other axes."""
    args = {"out": out(32, np.int32)}
    result = zinc_rt.launch(
        code_object("launches_32"), "narrow", grid=1, block=(32, 2), args=args, device="sim", sanitizer="fast"
    )
    assert result.findings == () and (result.outputs["out"] == 1).all()


def test_workgroup_larger_than_compiled_for_is_refused() -> None:
    with pytest.raises(InputError, match=r"narrow.*: invalid size of 128 work-items .* compiled for 1 to 64"):
        run("narrow", "launches_32", grid=1, block=128, args={"out": out(128, np.int32)})


def test_small_floats_of_ml_dtypes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ml_dtypes")
    code, result, second = tmp_path / "k.co", tmp_path / "made.npz", tmp_path / "again.npz"
    code.write_bytes(code_object("launches_32"))
    words = [str(code), "--kernel", "negate", "--block", "64", "--device", "sim"]
    first = ["--arg", "h=inout:bf16[64]:random:1", "--arg", "b=inout:f8e4m3[64]:fill:1.5"]
    assert main([*words, *first, "--npz", str(result)]) == 0
    text = capsys.readouterr().out
    assert "bfloat16[64]" in text and "float8_e4m3fn[64]" in text and "-1.5" in text
    assert main([*words, *first, "--expect", str(result), "--npz", str(second)]) == 0
    other = ["--arg", "h=inout:bf16[64]:random:1", "--arg", "b=inout:f8e4m3[64]:fill:1.25"]
    assert main([*words, *other, "--expect", str(result)]) == 1
    assert (
        "b: 64 of 64 differ, at most 2 ULPs apart; first at [0]: -1.25, expected -1.5" in capsys.readouterr().out
    )


def test_zrt_container_is_launched_with_its_workgroup() -> None:
    built = Path(zinc_rt.__file__).parent / "kernels/gfx1201/built/add.zrt"
    a, b = np.random.default_rng(3).standard_normal((2, 100)).astype(np.float32)
    args = {"a": a, "b": b, "y": out(100, np.float32), "n": np.uint32(100)}
    result = zinc_rt.launch(built, grid=1, args=args, device="sim")
    assert np.array_equal(result.outputs["y"], a + b) and result.findings == ()
    with pytest.raises(UsageError, match="no descriptor"):
        zinc_rt.launch(built, grid=1, args=args, device="sim", queue="aql")


def test_hidden_arguments_describe_the_launch_shape() -> None:
    result = run("shape", grid=(2, 3, 4), block=(8, 4), args={"out": out(10, np.uint32)})
    assert result.outputs["out"].tolist() == [2, 3, 4, 8, 4, 1, 0, 0, 0, 3]


def test_access_beyond_a_buffer_is_located_to_the_byte() -> None:
    y = np.zeros(SIZE, np.float32)
    args = {"y": inout(y), "x": y, "a": np.float32(1), "n": np.int32(SIZE + 1)}
    findings = run("saxpy", grid=4, block=256, args=args).findings
    assert [(finding.rule, finding.access, finding.instruction.split()[0]) for finding in findings] == [
        ("out-of-bounds", "load of x[1000] of 1000 elements", "global_load_b32"),
        ("out-of-bounds", "load of y[1000] of 1000 elements", "global_load_b32"),
        ("out-of-bounds", "store of y[1000] of 1000 elements", "global_store_b32"),
    ]
    for finding in findings:
        assert "saxpy+0x0" in finding.first and finding.kernel == "saxpy"
        assert "workgroup (3, 0, 0)" in finding.first


def test_fault_ends_the_launch_with_its_finding() -> None:
    args = {"out": out(8, np.uint32), "in": out(8, np.uint32), "held": Lds(1 << 16)}
    with pytest.raises(InputError, match="bytes of LDS"):
        run("rotate", grid=1, block=64, args=args | {"held": Lds((1 << 16) + 4)})
    small = {"out": out(4, np.int32), "step": np.int32(0)}
    with pytest.raises(LaunchStopped) as stop:
        run("gather", grid=1 << 15, block=64, args=small)
    assert any(finding.error for finding in stop.value.findings)


SAXPY = {"y": out(4, np.float32), "x": out(4, np.float32), "a": np.float32(1), "n": np.int32(4)}


@pytest.mark.parametrize(
    ("kernel", "args", "words"),
    [
        ("saxpi", SAXPY, ["no kernel saxpi", "saxpy", "gather, reverse"]),
        ("saxpy", {"y": SAXPY["y"]}, ["takes 4 arguments, but got 1", "global_buffer, 8 bytes at 8"]),
        ("saxpy", SAXPY | {"n": np.int64(4)}, ["n is int64", "by_value, 4 bytes at 20"]),
        ("saxpy", SAXPY | {"x": np.float32(4)}, ["x is float32", "global_buffer"]),
        ("saxpy", SAXPY | {"n": SAXPY["x"]}, ["n is a buffer", "by_value"]),
    ],
    ids=["kernel", "count", "size", "scalar for a buffer", "buffer for a scalar"],
)
def test_mismatched_arguments_are_reported(kernel: str, args: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        run(kernel, grid=1, block=64, args=args)
    for word in words:
        assert word in str(error.value)


def test_code_for_another_chip_names_both() -> None:
    code = bytearray(code_object("gfx1100_32"))
    code[48] = 0x44  # e_flags: gfx1103
    with pytest.raises(InputError, match=r"gfx1103.*can only run.*gfx1201") as error:
        zinc_rt.launch(bytes(code), "shape", grid=1, block=64, device="sim", args={"out": out(10, np.uint32)})
    assert "-mcpu=gfx1201" in str(error.value.next)


def test_gfx11_code_runs_on_a_simulated_7900_xtx() -> None:
    result = run("shape", "gfx1100_32", grid=1, block=64, args={"out": out(10, np.uint32)})
    assert result.outputs["out"][3] == 64 and result.device["arch"] == "gfx1100"


def test_generic_code_runs_on_a_chip_of_its_family() -> None:
    code = bytearray(code_object())
    code[48:52] = (0x59 | 1 << 24).to_bytes(4, "little")  # e_flags: gfx12-generic, its first version
    result = zinc_rt.launch(bytes(code), "shape", grid=1, block=64, device="sim", args={"out": out(10, np.uint32)})
    assert result.outputs["out"][3] == 64 and result.device["arch"] == "gfx1201"
    code = bytearray(code_object("gfx1100_32"))
    code[48:52] = (0x54 | 1 << 24).to_bytes(4, "little")
    result = zinc_rt.launch(bytes(code), "shape", grid=1, block=64, device="sim", args={"out": out(10, np.uint32)})
    assert result.outputs["out"][3] == 64 and result.device["arch"] == "gfx1100"


def test_null_access_reports_instruction_wave_and_lanes_in_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = tmp_path / "k.co", tmp_path / "r.json"
    code.write_bytes(code_object("calls_32"))
    words = [str(code), "--kernel", "null", "--block", "64", "--device", "sim", "--json", str(report)]
    assert main([*words, "--arg", "at=i32:40"]) == 1
    assert "page-fault" in capsys.readouterr().out
    (result,) = json.loads(report.read_text())["results"]
    [results] = [finding for finding in result["measure"]["findings"] if finding["rule"] == "page-fault"]
    assert (results["address"], results["wave"], results["workgroup"], results["lanes"]) == (
        0,
        1,
        [0, 0, 0],
        1 << 8,
    )
    assert (
        "store" in results["instruction"]
        and f"pc {results['pc']:#x} `{results['instruction']}`" in results["first"]
    )
    assert "lane 8" in results["first"] and "address 0x0" in results["first"]


@pytest.mark.rest
def test_launch_timeout_reports_wave_positions() -> None:
    assert (
        run("spin", "calls_32", grid=2, block=64, args={"flag": np.ones(4, np.int32)}).findings == ()
    )  # compiled
    with pytest.raises(LaunchStopped, match=r"did not end within 1 s: .*0 of 2 workgroups have ended") as stop:
        run("spin", "calls_32", grid=2, block=64, timeout_seconds=1.0, args={"flag": np.zeros(4, np.int32)})
    [result] = [finding for finding in stop.value.findings if finding.rule == "still-running"]
    assert (
        "in a loop of" in result.first
        and "the exit conditions depend on" in result.first
        and "3 more waves at the same place" in result.first
    )
    assert result.workgroup == (0, 0, 0) and result.wave == 0


def test_truncated_or_damaged_file_never_prints_a_traceback() -> None:
    whole = code_object()
    for size in range(0, len(whole), 97):
        with pytest.raises(InputError):
            read_code_object(whole[:size], "k.co")
    random = np.random.default_rng(1)
    for _ in range(200):
        data = bytearray(whole)
        for integer in random.integers(0, len(data), 4):
            data[integer] = random.integers(256)
        try:
            read_code_object(bytes(data), "k.co")
        except InputError:
            continue


def test_messagepack_examples_are_decoded() -> None:
    """The examples of spec.md's formats."""
    data = bytes.fromhex("85 a1 61 93 01 ff cd0100 a1 62 c3 a1 63 c0 a1 64 d2fffffffe a1 65 cb3ff8000000000000")
    assert unpack(data, "") == {"a": [1, -1, 256], "b": True, "c": None, "d": -2, "e": 1.5}
    with pytest.raises(InputError):
        unpack(b"\x91" * 40, "nested")


@pytest.mark.parametrize(
    "text", ["x", "x=f32", "x=f33:1", "x=in:f32[4]:best", "x=in:f32[]", "n=i8:300", "x=lds:a"]
)
def test_unreadable_argument_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_command_compares_and_reports_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, wanted, report = tmp_path / "k.co", tmp_path / "want.npz", tmp_path / "r.json"
    code.write_bytes(code_object())
    expected = np.roll(np.arange(64, dtype=np.int32), -1)
    np.savez(wanted, o=expected)
    words = [str(code), "--kernel", "rotate", "--block", "64", "--device", "sim", "--expect", str(wanted)]
    words += ["--arg", "o=out:i32[64]", "--arg", "i=in:i32[64]:range", "--arg", "l=lds:256", "--json", str(report)]
    assert main(words) == 0
    assert "o: 0 of 64 differ" in capsys.readouterr().out
    expected[5] = 0
    np.savez(wanted, o=expected)
    assert main(words) == 1
    assert "o: 1 of 64 differ; first at [5]: 6, expected 0" in capsys.readouterr().out
    (result,) = json.loads(report.read_text())["results"]
    assert result["measure"]["expected"][0]["first"] == [5]


@pytest.mark.skipif(not is_available(), reason="the package ziglang is not installed")
@pytest.mark.rest
def test_code_objects_match_their_source() -> None:
    for name, target in TARGETS.items():
        assert build(*target) == code_object(name)


def test_kernarg_segment_matches_the_descriptor_up_to_alignment() -> None:
    image = read_code_object(code_object(), "kernels")
    saxpy = image.kernels["saxpy"]
    assert image.image[saxpy.descriptor_at + 8 : saxpy.descriptor_at + 12] == saxpy.kernarg_bytes.to_bytes(
        4, "little"
    )
    shape = LaunchShape((1, 1, 1), (64, 1, 1), 1)
    for message, wanted in ((saxpy.kernarg_bytes, -(-saxpy.kernarg_bytes // 16) * 16), (276, 288)):
        assert len(pack(replace(saxpy, kernarg_bytes=message), [], {}, shape)[0]) == wanted
