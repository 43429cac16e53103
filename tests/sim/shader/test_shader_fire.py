"""Machine code that nobody wrote never takes the process with it and never runs on past its fuel."""

from __future__ import annotations

import os
from typing import Any

import fire
import pytest
from fire_programs import MAKERS, instruction_pool, random_program
from machine_words import ENDPGM, code_of, store_dword
from support import Counts

from zinc_rt.isa.rows import strip_suffix
from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.run.kernels import compile_variant, load_variant
from zinc_rt.sim.shader.translate.evidence import list_decoded_rows
from zinc_rt.sim.shader.translate.semantics import EMIT

OUTCOMES = {"ran", "faulted", "out of fuel", "refused at decode", "refused at compile"}


@pytest.mark.rest
def test_random_and_mutated_code_is_decoded_linted_compiled_and_run(slow_counts: Counts) -> None:
    count = slow_counts(120, 100_000)
    fired = fire.run_programs(range(count), processes=1 if count < 1000 else os.cpu_count() or 1)
    text = "\n".join(fired.lines())
    assert not fired.failures, "\n".join([text, *map(fire.failure_report, fired.failures[:3])])
    assert fired.count == count, text
    assert set(fired.outcomes) >= OUTCOMES, text
    assert fired.outcomes["ran"] >= 0.3 * count, text
    assert 0 < fired.lint < count, text
    assert all(fired.kinds[f"{kind}: ran"] for kind in MAKERS if kind != "words"), fired.kinds
    assert {"page-fault", "illegal", "uninitialised-vgpr"} <= set(fired.rules), fired.rules


@pytest.mark.rest
def test_generator_covers_most_instructions_and_is_deterministic() -> None:
    known = {strip_suffix(name) for name in instruction_pool(32)}
    simulated = {row.name for _, row in list_decoded_rows(make_default_target())} & set(EMIT)
    assert len(known & simulated) > 0.95 * len(simulated), sorted(simulated - known)
    assert random_program(7) == random_program(7)
    assert len({random_program(seed).code for seed in range(300)}) > 290
    assert {random_program(seed).kind for seed in range(50)} == set(MAKERS)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("planted", "reason"),
    [("store past the end", "SIGSEGV"), ("spin", "SIGPROF: it went on past its fuel"), ("raise", "host error")],
)
def test_planted_failure_is_detected_and_its_program_named(planted: str, reason: str) -> None:
    heard: list[dict[str, Any]] = []
    asked = [{"seed": 3, "planted": "nothing"}, {"seed": 5, "planted": planted}, {"seed": 8, "planted": "nothing"}]
    failure = fire.run_in_process(asked, heard.append)
    assert failure is not None and failure.seed == 5 and failure.why.startswith(reason), failure
    assert heard[0]["seed"] == 3
    if planted == "raise":
        assert "KeyError: 'planted'" in failure.text


def test_failing_program_is_isolated_and_minimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for processes: the failure needs seed 11 first, and two of the culprit's instructions."""
    culprit = next(
        seed
        for seed in range(100)
        if random_program(seed).kind == "kernel" and len(random_program(seed).code) > 40
    )
    code = random_program(culprit).code
    needed = [code[:4], code[8:12]]
    tried: list[Any] = []

    def fail_if_planted(requests: list[dict[str, Any]], on_answer: Any) -> fire.FireFailure | None:
        tried.append(requests)
        last = bytes.fromhex(requests[-1]["code"]) if "code" in requests[-1] else code
        bad = any(item["seed"] == 11 for item in requests) and all(item in last for item in needed)
        return fire.FireFailure(culprit, "SIGSEGV", "") if bad else None

    monkeypatch.setattr(fire, "run_in_process", fail_if_planted)
    failure = fire.find_needed_programs(fire.FireFailure(culprit, "SIGSEGV", "", tuple(range(4, 20))))
    assert failure.before == (11,)
    short = fire.minimise_program(failure)
    assert len(short) < len(code) / 2 and all(item in short for item in needed)
    text = fire.failure_report(fire.FireFailure(culprit, "SIGSEGV", "the child's words", tuple(range(4, 20))))
    assert "SIGSEGV, after 1 others" in text and ".long 0x" in text and "the child's words" in text
    first, last = sorted((11, culprit))
    assert f"fire.py --first {first} --count {last - first + 1} --show" in text


def test_conversions_do_not_need_an_external_runtime_function() -> None:
    """v_frexp_mant_f16 of a scalar in wave64 wanted __truncdfhf2; found by seed 3788 of an earlier generator."""
    frexp = bytes.fromhex("0000d9d501162904") + encode_store_and_end()
    variant = KernelVariant(frexp, make_default_target(64), True, Checks("off"), 24, 8)
    assert load_variant(variant, compile_variant(variant)).address


@pytest.mark.rest
@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "code",
    ["fc8921d50d0c0204", "050001d50d0c0204"],
    ids=["v_sub_co_ci_u32_e64 v252, s9, s13, v6, v0 clamp", "v_cndmask_b32_e64 v5, s13, v6, v0"],
)
def test_vector_register_as_lane_mask_is_rejected(code: str) -> None:
    """It ended the process: a check read EXEC, which nothing had loaded where the wave resumes. Seed 50236."""
    seed = next(
        index
        for index in range(1000)
        if random_program(index).wave == 32 and random_program(index).threads == (7, 1, 1)
    )
    heard: list[dict[str, Any]] = []
    assert fire.run_in_process([{"seed": seed, "code": code + code_of(ENDPGM).hex()}], heard.append) is None
    assert [item["outcome"] for item in heard] == ["refused at compile"]


@pytest.mark.rest
@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "half",
    ["0f68eabe", "0e0eeaa4"],
    ids=["s_cvt_f16_f32 vcc_lo, s15", "s_add_f16 vcc_lo, s14, s14"],
)
def test_f16_result_used_as_64_lane_mask_is_compiled(half: str) -> None:
    """LLVM could not select a bitcast of it on a CPU with AVX-512, and ended the process. Seed 19886."""
    code = half + "061a38d605060e00" + "088006ee0000000300040000"  # v_div_fmas_f64 v[6:7], ...; a store of v6
    heard: list[dict[str, Any]] = []
    assert fire.run_in_process([{"seed": 19886, "code": code + code_of(ENDPGM).hex()}], heard.append) is None
    assert [item["outcome"] for item in heard] == ["ran"]


def encode_store_and_end() -> bytes:
    return code_of(store_dword(0, 1, 0), ENDPGM)
