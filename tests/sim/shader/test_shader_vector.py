"""Vector instructions whose results are known from mathematics or from the manual's own examples."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from support import Counts
from vector_programs import PROGRAMS, read_programs, run_program

from zinc_rt.isa import decode_stream, target_of
from zinc_rt.sim.shader.perturbation import perturb_results

Array = np.ndarray
F32, U32 = np.float32, np.uint32
SPECIAL = (
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x007FFFFF, 0x00800000, 0x80800000, 0x00800001, 0x3F800000,
    0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x40490FDB, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
    0x7E800000, 0x7E800001, 0x7F000000, 0x0C800000, 0x64000000, 0x3E800000, 0x3FB504F3, 0x3FB504F4, 0xC2FC0000,
    0x42FFFFFF, 0x43000000, 0x33800000, 0x34000000, 0x40400000,
)  # fmt: skip


def random_floats(rng: np.random.Generator, count: int) -> Array:
    """Return random bits, half of them of ordinary magnitude."""
    any_bits = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(U32).view(F32)
    ordinary = (rng.standard_normal(count) * 8).astype(F32)
    result = np.where(rng.integers(2, size=count) > 0, any_bits, ordinary)
    result[: len(SPECIAL)] = np.array(SPECIAL, U32).view(F32)
    return result


def is_same(got: Array, want: Array) -> Array:
    return (got == want.view(got.dtype)) | np.isnan(got.view(F32)) & np.isnan(want.view(F32))


def test_program_file_contains_all_source_programs() -> None:
    codes = read_programs()
    assert codes.keys() == PROGRAMS.keys()
    for name, text in PROGRAMS.items():
        items = list(decode_stream(codes[name], target_of("gfx1201", wave=32)))
        shown = [item.instruction.text for item in items if item.instruction is not None]
        for line in text.strip().splitlines():
            mnemonic = line.split()[0]
            assert any(mnemonic in item for item in shown), f"{name}: no {mnemonic}"


@pytest.mark.parametrize("perturb", [0, 1, 2])
def test_compiled_float_division_is_exact(perturb: int, slow_counts: Counts) -> None:
    """v_div_scale, v_div_fmas, v_div_fixup around v_rcp_f32; denormals included.

    With a reciprocal that is off by one ULP a quotient is, too, now and then (denominators just below 2**n).
    """
    for trial in range(slow_counts(4, 64)):
        rng = np.random.default_rng([perturb, trial])
        a, b = random_floats(rng, 1024), rng.permutation(random_floats(rng, 1024))
        with np.errstate(all="ignore"):
            b[512:640] = a[512:640] * F32(1 + 2.0**-20)
            want = a / b
        (quotient, *_), findings = run_program("divide_32", (a, b), perturb=perturb)
        assert not findings
        wrong = ~is_same(quotient, want)
        if perturb:
            step = quotient.view(np.int32).astype(np.int64) - want.view(np.int32)
            assert wrong.sum() < 4
            wrong &= np.abs(step) > 1
        assert not wrong.any(), [(a[i], b[i], quotient.view(F32)[i]) for i in np.flatnonzero(wrong)[:4]]


def test_compiled_double_division_is_exact(slow_counts: Counts) -> None:
    """Denominators have 32 bits; quotients reach into the denormals and beyond the largest number."""
    for trial in range(slow_counts(4, 64)):
        rng = np.random.default_rng([64, trial])
        a = rng.integers(0, 1 << 64, 1024, dtype=np.uint64)
        b = rng.integers(0, 1 << 32, 1024, dtype=np.uint64) << np.uint64(32)
        special = np.array(SPECIAL, np.uint64)
        a[:32], b[32:64] = special << np.uint64(32), special << np.uint64(32)
        power = rng.integers(1, 900, 512, dtype=np.uint64)  # and denormal quotients
        lower = rng.integers(1000, 1080, 512, dtype=np.uint64)
        fraction = np.uint64((1 << 52) - 1)
        a[512:] = a[512:] & fraction | power << np.uint64(52)
        b[512:] = b[512:] & fraction | power + lower << np.uint64(52)
        low, high = (a & np.uint64(0xFFFFFFFF)).astype(U32), (a >> np.uint64(32)).astype(U32)
        out, findings = run_program("divide_64", (low, high, (b >> np.uint64(32)).astype(U32)))
        assert not findings
        got = (out[0] | out[1].astype(np.uint64) << np.uint64(32)).view(float)
        with np.errstate(all="ignore"):
            want = a.view(float) / b.view(float)
        wrong = ~((got.view(np.uint64) == want.view(np.uint64)) | np.isnan(got) & np.isnan(want))
        assert (np.abs(want[512:]) < 2.0**-1022).sum() > 100
        assert not wrong.any(), [(a.view(float)[i], b.view(float)[i], got[i]) for i in np.flatnonzero(wrong)[:4]]


def round_to_precision(value: mpmath.mpf, precision: int = 24) -> float:
    """Round to `precision` bits with an unlimited exponent."""
    with mpmath.workprec(precision):
        return +value


def exact_result(name: str, x: float) -> float:
    """Return the correctly rounded float32 result for a finite, normal (or zero) input, with denormal results
    flushed.
    """
    with mpmath.workprec(400):
        m = mpmath.mpf(x)
        if name in ("log", "rsq", "sqrt") and x < 0:
            return float("nan")
        if x == 0:
            sign = float(np.copysign(1.0, x))
            zero = {"exp": 1.0, "log": -np.inf, "rcp": sign * np.inf, "rsq": sign * np.inf, "sin": x, "cos": 1.0}
            return zero.get(name, x)
        if name == "exp" and abs(x) > 300:
            return float("inf") if x > 0 else 0.0
        if name in ("sin", "cos"):
            m -= mpmath.nint(m)
        value = {
            "exp": lambda: mpmath.power(2, m),
            "log": lambda: mpmath.log(m, 2),
            "rcp": lambda: 1 / m,
            "rsq": lambda: 1 / mpmath.sqrt(m),
            "sqrt": lambda: mpmath.sqrt(m),
            "sin": lambda: mpmath.sinpi(2 * m),
            "cos": lambda: mpmath.cospi(2 * m),
        }[name]()
        value = round_to_precision(value)
    if abs(value) < 2.0**-126 and name != "sin":
        return 0.0 if value == 0 else float(np.copysign(0.0, float(value)))
    with np.errstate(over="ignore"):
        return float(F32(float(value)))


NAMES = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")


def test_inexact_functions_are_correctly_rounded(slow_counts: Counts) -> None:
    count = slow_counts(256, 1024)
    x = random_floats(np.random.default_rng(7), count)
    out, findings = run_program("inexact_32", (x,))
    assert not findings
    usable = np.isfinite(x) & ((np.abs(x) >= 2.0**-126) | (x == 0))
    for name, got in zip(NAMES, out, strict=False):
        want = np.array([exact_result(name, float(v)) for v in x[usable]], F32)
        wrong = ~is_same(got[usable], want)
        shown = [(x[usable][i], got[usable].view(F32)[i], want[i]) for i in np.flatnonzero(wrong)[:4]]
        assert not wrong.any(), f"{name}: {shown}"
    assert (out[7] == out[2]).all()  # v_rcp_iflag_f32


def test_inexact_functions_with_special_inputs() -> None:
    """The manual's examples, and denormals that count as zeros."""
    table = {
        0xFF800000: (0x00000000, 0xFFC00000, 0x80000000, 0xFFC00000, 0xFFC00000, 0xFFC00000, 0xFFC00000),
        0x7F800000: (0x7F800000, 0x7F800000, 0x00000000, 0x00000000, 0x7F800000, 0xFFC00000, 0xFFC00000),
        0x80000000: (0x3F800000, 0xFF800000, 0xFF800000, 0xFF800000, 0x80000000, 0x80000000, 0x3F800000),
        0x00000000: (0x3F800000, 0xFF800000, 0x7F800000, 0x7F800000, 0x00000000, 0x00000000, 0x3F800000),
        0x00000003: (0x3F800000, 0xFF800000, 0x7F800000, 0x7F800000, 0x00000000, 0x00000013, 0x3F800000),
        0x3E800000: (0x3F9837F0, 0xC0000000, 0x40800000, 0x40000000, 0x3F000000, 0x3F800000, 0x00000000),
        0xFF7FFFFF: (0x00000000, 0xFFC00000, 0x80000000, 0xFFC00000, 0xFFC00000, 0x00000000, 0x3F800000),
    }
    x = np.resize(np.array(list(table), U32), 32)
    for perturb in (0, 5):
        out, _ = run_program("inexact_32", (x,), perturb=perturb)
        for lane, (argument, results) in enumerate(table.items()):
            for name, got, want in zip(NAMES, out, results, strict=False):
                if not perturb or argument not in (0x3E800000, 0xFF7FFFFF):  # those are ordinary inputs
                    assert int(got[lane]) == want, f"{name} of {argument:#x}"


def test_inexact_functions_of_every_half_float() -> None:
    x = np.arange(1 << 16, dtype=U32).reshape(-1, 1024)
    out = [run_program("inexact_16", (part,), level="off")[0] for part in x]
    with np.errstate(all="ignore"):
        h = x.astype(np.uint16).view(np.float16).astype(np.longdouble)
        turn = h - np.rint(h)
        wants = (np.exp2(h), np.log2(h), 1 / h, 1 / np.sqrt(h), np.sqrt(h))
        pi = np.longdouble("3.14159265358979323846264338327950288")
        quarter = np.abs(turn) == 0.25
        wants += (np.sin(2 * pi * turn), np.where(quarter, 0, np.cos(2 * pi * turn)))
        for location, want in enumerate(wants):
            got = np.stack([part[location] for part in out]).astype(np.uint16).view(np.float16)
            want = np.where(np.isin(turn, (0, 0.5, -0.5)), turn * 0, want) if location == 5 else want
            near = want.astype(float).astype(np.float16)  # long doubles go by way of floats
            assert ((got == near) | np.isnan(got) & np.isnan(near)).all(), NAMES[location]
    kept = np.stack([part[0] for part in out]) >> 16
    assert (kept == 0x5A5A).all()


def test_perturbed_results_differ_by_at_most_one_ulp() -> None:
    x = random_floats(np.random.default_rng(3), 1024)
    exactly, _ = run_program("inexact_32", (x,))
    moved, _ = run_program("inexact_32", (x,), perturb=11)
    second, _ = run_program("inexact_32", (x,), perturb=11)
    other, _ = run_program("inexact_32", (x,), perturb=12)
    for name, a, b, c, d in zip(NAMES, exactly, moved, second, other, strict=False):
        nan = np.isnan(a.view(F32))
        step = b.view(np.int32).astype(np.int64) - a.view(np.int32)
        assert (np.abs(step[~nan]) <= 1).all(), name
        assert min((step == -1).sum(), (step == 0).sum(), (step == 1).sum()) > 60, name
        assert (b == c).all(), name
        assert (b != d).any(), name


@pytest.mark.parametrize("by", [1, -1])
def test_single_function_can_be_perturbed(by: int) -> None:
    x = np.abs(random_floats(np.random.default_rng(4), 1024)) + F32(1)
    x = np.where(np.isfinite(x) & (x < 100), x, F32(1.5)).astype(F32)
    exactly, _ = run_program("inexact_32", (x,))
    for index, function in enumerate(("exp", "log", "rcp", "rsq", "sqrt")):
        moved, _ = run_program("inexact_32", (x,), perturb=perturb_results(by, function))
        for location, (a, b) in enumerate(zip(exactly, moved, strict=True)):
            step = b.view(np.int32).astype(np.int64) - a.view(np.int32)
            ordinary = a.view(F32) != 0
            assert (step[ordinary] == (by if location == index or (location, index) == (7, 2) else 0)).all(), (
                function,
                location,
            )


def test_scalar_functions_run_with_all_lanes_off() -> None:
    x = np.zeros(32, F32)
    x[5] = 2.25
    halves = np.zeros(32, U32)
    halves[5] = 0xFFFF0000 | int(np.float16(2.25).view(np.uint16))
    out, findings = run_program("inexact_scalar", (x, halves))
    assert not findings
    want = [F32(2**2.25), F32(np.log2(2.25)), F32(-1 / 2.25), F32(1 / 1.5), F32(3.0)]
    for got, value in zip(out, want, strict=False):
        assert got.view(F32)[0] == value
    assert out[5][0] == int(np.float16(1.5).view(np.uint16))


def test_dual_instructions_read_before_they_write() -> None:
    a, b = np.arange(32, dtype=U32), np.arange(100, 132, dtype=U32)
    (first, second, third, fourth, *_), findings = run_program("swap_dual", (a, b))
    assert not findings
    assert (first == b).all()
    assert (second == a).all()
    assert (third == b << 3).all()
    assert (fourth.view(F32) == a.view(F32) * 4).all()


def test_registers_are_indexed_by_m0() -> None:
    a, b, c = (np.arange(32, dtype=U32) + at for at in (0, 100, 200))
    (first, second, third, *_), findings = run_program("moved_by_m0", (a, b, c))
    assert not findings
    assert (first == a).all()  # v[1 + 9]
    assert (second == c).all()  # v[0 + 11] from v[2 + 1]
    assert (third == b).all()  # v[1 + 1]


def test_products_and_sums_round_separately() -> None:
    a = np.full(32, 1 + 2.0**-12, F32)
    c = -(a * a)
    (separate, together, dual, *_), _ = run_program("no_contraction", (a, a, c))
    assert (separate.view(F32) == 0).all()
    assert (dual.view(F32) == 0).all()
    assert (together.view(F32) == 2.0**-24).all()


def test_sums_of_absolute_differences_over_a_sliding_window() -> None:
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(0, 1 << 32, 32, dtype=np.uint64).astype(U32) for _ in range(3))
    c &= np.resize(np.array([0xFFFFFFFF, 0xFF00FFFF, 0x00FFFF00], U32), 32)
    out, findings = run_program("sad_windows", (a, b, c))
    assert not findings
    for lane in range(32):
        window = a[lane].tobytes() + b[lane].tobytes()
        data = c[lane].tobytes()
        totals = np.frombuffer(window, np.uint16).astype(int)
        sums, masked = [], []
        for index in range(4):
            differences = [abs(x - y) for x, y in zip(window[index : index + 4], data, strict=True)]
            sums.append(sum(differences))
            masked.append(sum(d for d, y in zip(differences, data, strict=True) if y))
        plain = np.array([out[6][lane], out[7][lane]], U32).view(np.uint16)
        packed = np.array([out[0][lane], out[1][lane]], U32).view(np.uint16)
        assert plain.tolist() == ((totals + sums) % (1 << 16)).tolist()
        assert packed.tolist() == ((totals + masked) % (1 << 16)).tolist()
        starts = [int(a[lane]), int(b[lane]), 7, 0xFFFFFFFF]
        assert [int(out[2 + index][lane]) for index in range(4)] == [
            (start + item) % (1 << 32) for start, item in zip(starts, masked, strict=True)
        ]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("name", "rule", "lanes"),
    [
        ("read_first_of_none", "exec-empty", 0),
        ("dpp_off", "inactive-lane", 0x000F),
        ("permlane_off", "inactive-lane", 0xFF000000),
        ("matrix_off", "wmma-exec", 0x7FFFFFFF),
    ],
)
def test_reads_of_inactive_lanes_are_reported(name: str, rule: str, lanes: int) -> None:
    x = np.arange(32, dtype=U32)
    _, findings = run_program(name, (x, x))
    assert [finding.rule for finding in findings] == [rule]
    assert findings[0].lanes == lanes
    _, silent = run_program(name, (x, x), level="off")
    assert not silent


def test_inactive_lane_may_be_read_by_readlane() -> None:
    x = np.arange(32, dtype=U32)
    assert run_program("read_lane_off", (x, x))[1] == []


def test_only_lanes_read_by_dpp_must_be_initialised() -> None:
    x = np.arange(40, 72, dtype=U32)
    (shared, *_), findings = run_program("dpp_shares_one_lane", (x,))
    assert not findings
    assert shared.tolist() == [40] * 16 + [0x5A5A5A5A] * 16
    _, findings = run_program("dpp_shares_an_unwritten_lane", (x,))
    assert [finding.rule for finding in findings] == ["uninitialised-vgpr"]
    assert findings[0].lanes == 1 << 16


def test_permuting_instructions_leave_other_lanes_unchanged() -> None:
    x = np.arange(32, dtype=U32)
    first, findings = run_program("read_first_of_some", (x,))
    assert not findings
    assert first[0].tolist() == [8 if lane in (8, 10) else 0x5A5A5A5A for lane in range(32)]
    on, findings = run_program("read_lane_on", (x,))
    assert not findings
    assert on[0].tolist() == [3 if lane < 8 else 0x5A5A5A5A for lane in range(32)]
    rotated, _ = run_program("dpp_off", (x,))
    active = [lane < 8 or lane >= 16 for lane in range(32)]
    source = [lane & 16 | (lane - 4) & 15 for lane in range(32)]
    kept = 0x5A5A5A5A
    want = [source[lane] if active[lane] and active[source[lane]] else kept for lane in range(32)]
    assert rotated[0].tolist() == want
    (zeroed, fetched, *_), findings = run_program("dpp_off_zero", (x,))
    assert not findings
    want = [(source[lane] if active[source[lane]] else 0) if active[lane] else kept for lane in range(32)]
    assert zeroed.tolist() == want
    assert fetched.tolist() == [source[lane] if active[lane] else kept for lane in range(32)]


def test_integer_matrix_product() -> None:
    """Signed A, unsigned B, C = 1: by the manual's layout of lanes."""
    rng = np.random.default_rng(9)
    a, b = (rng.integers(0, 1 << 32, 32, dtype=np.uint64).astype(U32) for _ in range(2))
    out, findings = run_program("matrix_on", (a, b))
    assert not findings
    k = np.arange(16)
    unsigned_a = np.array([[a[(at >> 3) * 16 + row] >> U32(4 * (at & 7)) & U32(15) for at in k] for row in k], int)
    signed_a = np.where(unsigned_a > 7, unsigned_a - 16, unsigned_a)
    of_b = np.array([[b[(at >> 3) * 16 + column] >> U32(4 * (at & 7)) & U32(15) for column in k] for at in k], int)
    want = signed_a @ of_b + 1
    got = np.array([[out[row % 8].view(np.int32)[row // 8 * 16 + column] for column in k] for row in k])
    assert (got == want).all()
