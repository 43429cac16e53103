"""V06 and V07: float arithmetic, compared with the driver's claims and with IEEE 754."""

from __future__ import annotations

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan import self_test
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.physical_device import MODES
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.probes.outcome import VULKAN, Outcome, check, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves
from zinc_rt.probes.vulkan.bench import VulkanBench
from zinc_rt.probes.vulkan.context import VulkanProbeContext

CASES = 1 << 15
ADD, MULTIPLY, MULTIPLY_ADD, DIVIDE, ROOT, MAXIMUM, ZERO_PLUS, IS_NAN = range(8)  # rows of probe_float.comp
MINUS_ZERO = np.uint32(0x80000000)


@probe("V06", "float controls", (VULKAN,), hazard=0, needs=("V05",))
@proves(
    (
        "sums and products are rounded individually to nearest even, denormals are kept: required by "
        "canonical orderings"
    ),
    passes_when="every bit of a + b, a * b and a * b + c is that of IEEE 754; other operations are reported",
)
@fails(
    symptom("rounding"),
    "the driver does not round to nearest even although the kernel requests it",
    "report it to the driver's vendor; canonical orderings are unavailable",
)
@fails(
    symptom("denormals"),
    "the driver flushes denormals, and offers no mode that keeps them",
    "update the driver; canonical orderings are unavailable",
)
@fails(
    symptom("contraction"),
    "the driver's compiler fuses a product and a sum despite NoContraction",
    "report it to the driver's vendor; canonical orderings are unavailable",
)
def probe_float_controls(c: VulkanProbeContext) -> Outcome:
    a, b, x = make_operands()
    got = measure_functions(c.bench, a, b, x)
    with np.errstate(all="ignore"):
        product = a * b
        want = {ADD: a + b, MULTIPLY: product, MULTIPLY_ADD: product + x}
        tiny = np.abs(want[MULTIPLY]) < np.finfo(np.float32).tiny
        ratio, root = a / b, np.sqrt(a)
    check(not count_differences(got[MULTIPLY][tiny], product[tiny]), "denormals", "a denormal product is flushed")
    for number, name in ((ADD, "a + b"), (MULTIPLY, "a * b")):
        wrong = count_differences(got[number], want[number])
        check(not wrong, "rounding", f"{name}: {wrong} of {CASES} results are wrong")
    wrong = count_differences(got[MULTIPLY_ADD], want[MULTIPLY_ADD])
    check(not wrong, "contraction", f"a * b + c: {wrong} of {CASES} results are wrong")
    nans = np.isnan(a) | np.isnan(b)
    return passed(
        division_ulp=find_worst_ulp(got[DIVIDE], ratio),
        square_root_ulp=find_worst_ulp(got[ROOT], root),
        zero_plus_minus_zero=bool((got[ZERO_PLUS].view(np.uint32)[a.view(np.uint32) == MINUS_ZERO] == 0).all()),
        max_keeps_nan=bool(np.isnan(got[MAXIMUM][nans]).all()),
        tells_nan=bool((got[IS_NAN] == np.isnan(a)).all()),
        claims=[mode for name, mode in MODES.items() if name in c.physical.float_controls],
    )


def make_operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random bits, including values of similar magnitude, denormal products, zeros of both signs
    and NaN."""
    random = np.random.default_rng(16)
    a, b, x = random.integers(0, 1 << 32, (3, CASES), np.uint64).astype(np.uint32)
    near = slice(0, CASES // 2)  # exponents of about 1, where sums round and products cancel
    for item in (a, b, x):
        item[near] = (item[near] & 0x80FFFFFF) | 0x3F000000
    tiny = slice(CASES // 2, CASES // 2 + 1024)
    a[tiny], b[tiny] = (a[tiny] & 0x807FFFFF) | 0x1F800000, (b[tiny] & 0x807FFFFF) | 0x1F000000
    a[:64], b[64:128], a[128:192] = MINUS_ZERO, 0x7FC00000, 0x7FC00000
    return a.view(np.float32), b.view(np.float32), x.view(np.float32)


def measure_functions(bench: VulkanBench, *abc: np.ndarray) -> np.ndarray:
    """Return float32 [8, n]: every operation of probe_float.comp."""
    y = bench.words(8 * CASES, "results")
    arguments = [bench.of(item) for item in abc]
    bench.run(bench.dispatch("probe_float", (*arguments, y, CASES), (CASES // 32, 8, 1)))
    return y.floats.reshape(8, CASES)


def count_differences(got: np.ndarray, want: np.ndarray) -> int:
    """Return the number of differing bit patterns; all NaNs are equal."""
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    return int(np.count_nonzero(~same))


def find_worst_ulp(got: np.ndarray, want: np.ndarray) -> int:
    """Return the largest difference of normal, finite results."""
    normal = np.isfinite(want) & (np.abs(want) >= np.finfo(np.float32).tiny)
    bits = [item[normal].view(np.int32).astype(np.int64) for item in (got, want)]
    ordered = [np.where(bit < 0, -(bit & 0x7FFFFFFF), bit) for bit in bits]
    return int(np.abs(ordered[0] - ordered[1]).max(initial=0))


@probe("V07", "self-test", (VULKAN,), hazard=0, needs=("V05",), seconds=60.0)
@proves(
    "every operation of canonical-1 has the reference's bits on this driver",
    passes_when="no operation on 4,096 operands differs; otherwise canonical-1 is rejected",
)
@fails(
    symptom("wrong-bits"),
    "the driver's compiler changes float arithmetic in a way that no mode prevents, or has a bug",
    "report operation and operands to the driver's vendor; VK_DRIVER_FILES=FILE selects another driver",
)
def probe_self_test(c: VulkanProbeContext) -> Outcome:
    with VulkanBackend(
        registry.spec("vulkan"), "canonical-1", c.device, KERNELS, VulkanOptions(cache=None)
    ) as backend:
        wrong = self_test.find_differences(backend)
    check(not wrong, "wrong-bits", "; ".join(str(item) for item in wrong[:3]))
    return passed(operations=len(self_test.OPERATIONS), cases=len(self_test.make_operands().a))
