"""The self-test of arithmetic: which bits it wants, how it names what is wrong, and what a driver gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from backends.vulkan.arithmetic_sweep import SWEPT, sweep_blocks
from support import Counts

from zinc_rt.backends.spec import BackendSpec
from zinc_rt.backends.vulkan import self_test
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import PhysicalDevice, open_device
from zinc_rt.backends.vulkan.self_test_cases import (
    CASES,
    OPERATIONS,
    SPECIAL,
    Operands,
    find_wrong_bits,
    make_operands,
)
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.kernels.spirv.compile import KERNELS as FOLDER
from zinc_rt.kernels.spirv.table import KERNELS

Results = Callable[..., np.ndarray]
NUMBER = {operation.name: number for number, operation in enumerate(OPERATIONS)}


@pytest.fixture
def backend(vulkan_driver: PhysicalDevice) -> Iterator[VulkanBackend]:
    device = open_device(vulkan_driver)
    with VulkanBackend(
        BackendSpec("vulkan", "Vulkan"), "canonical-1", device, KERNELS, VulkanOptions(), after=device.close
    ) as backend:
        yield backend


@pytest.fixture
def object_cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path)


def expected_bits(number: int, operands: Operands) -> np.ndarray:
    with np.errstate(all="ignore"):
        return OPERATIONS[number].want(*operands.floats).view(np.uint32)


def test_kernel_has_a_case_for_every_operation() -> None:
    source = (FOLDER / "self_test.comp").read_text()
    assert [int(number) for number in re.findall(r"case (\d+)u:", source)] == list(range(len(OPERATIONS) - 1))


def test_operands_are_deterministic_and_hold_all_pairs_of_special_values() -> None:
    argument, second = make_operands(), make_operands()
    assert (argument.a == second.a).all() and (argument.b == second.b).all() and (argument.c == second.c).all()
    assert len(argument.a) == len(argument.b) == len(argument.c) == CASES
    pairs = set(zip(argument.a.tolist(), argument.b.tolist(), strict=True))
    assert {(int(a), int(b)) for a in SPECIAL for b in SPECIAL} <= pairs


@pytest.mark.parametrize("name", NUMBER)
def test_correct_bits_pass_and_a_wrong_one_is_reported(name: str) -> None:
    argument, number = make_operands(), NUMBER[name]
    got = expected_bits(number, argument).copy()
    assert len(set(got.tolist())) > 3
    assert find_wrong_bits(number, argument, got) is None
    index = 1500  # not NaN: any NaN is as good as another
    got[index] ^= 1
    result = find_wrong_bits(number, argument, got)
    assert result is not None and result.wrong == 1
    assert result.operands[0] == argument.a[index] and len(result.operands) == OPERATIONS[number].operands
    assert str(result).startswith(f"{name}: 1 of {CASES} wrong, the first at a {argument.a[index]:#010x}")
    assert str(result).endswith(f"expected {result.want:#010x}, got {result.want ^ 1:#010x}")


def test_any_nan_is_accepted_where_nan_is_expected() -> None:
    argument, number = make_operands(), NUMBER["a + b"]
    got = expected_bits(number, argument).copy()
    nan = np.isnan(got.view(np.float32))
    got[nan] = 0xFFFFFFFF
    assert nan.any() and find_wrong_bits(number, argument, got) is None


def test_driver_computes_all_bits_correctly(backend: VulkanBackend, slow_counts: Counts) -> None:
    assert self_test.find_differences(backend, make_operands(slow_counts(CASES, 1 << 20))) == ()


def test_success_is_cached(
    backend: VulkanBackend, object_cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert self_test.find_refusal(backend, object_cache) == ""
    monkeypatch.setattr(self_test, "find_differences", None)  # not asked again
    assert self_test.find_refusal(backend, object_cache) == ""


def flushed_results(
    backend: VulkanBackend, operands: Operands, numbers: range, correct_numbers: Results = self_test.run_operations
) -> np.ndarray:
    """The results of a device that flushes denormals."""
    got = correct_numbers(backend, operands, numbers)
    denormal = (got & 0x7F800000 == 0) & (got & 0x7FFFFF != 0)
    return np.where(denormal, got & 0x80000000, got)


def test_failure_names_the_operation_and_is_not_cached(
    backend: VulkanBackend, object_cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(self_test, "run_operations", flushed_results)
        refusal = self_test.find_refusal(backend, object_cache)
        assert refusal == self_test.find_refusal(backend, object_cache)
    assert refusal.startswith(f"canonical-1 on {backend.vulkan.physical.name} ")
    assert re.search(
        r"computes different bits: a \+ b: \d+ of 4096 wrong, the first at a 0x\w{8}, b 0x\w{8}", refusal
    )
    assert self_test.find_refusal(backend, object_cache) == ""


def test_rejected_device_does_not_open(
    vulkan_driver: PhysicalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(self_test, "run_operations", flushed_results)
    with pytest.raises(UnsupportedError, match=r"canonical-1 on .*: its driver computes different bits: a \+ b: "):
        open_backend(choose_tier("vulkan", ordering="canonical-1"), "canonical-1", threads=1)


def test_digest_depends_on_the_float_modes(backend: VulkanBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    before = self_test.digest_inputs(backend)
    monkeypatch.setattr(type(backend.vulkan), "float_modes", ("RoundingModeRTE",))
    assert self_test.digest_inputs(backend) != before


@pytest.mark.rest(keep=4)
@pytest.mark.parametrize("function", SWEPT)
def test_function_is_exact_over_sampled_argument_range(
    function: str, backend: VulkanBackend, slow_counts: Counts
) -> None:
    """`python tests/backends/vulkan/arithmetic_sweep.py` takes all of them."""
    assert sweep_blocks(backend, function, blocks=slow_counts(1, 64)) is None
