"""--tier vulkan where something goes wrong while a model runs: one sentence, and the exit code for it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from zinc_rt.backends.vulkan import device, loader, physical_device, self_test, self_test_cases
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.physical_device import MemoryHeap, PhysicalDevice
from zinc_rt.cli.run import main

LINE = ["--tokens", "1,2,3", "--max-tokens", "60"]


def run_model(model: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    try:
        code = main(["--model", model, *LINE, *(options or ("--tier", "vulkan"))])
    except SystemExit as end:
        code = int(end.code or 0)
    seen = capsys.readouterr()
    output = seen.out + seen.err
    assert "Traceback" not in output
    return code, output


@pytest.mark.rest
def test_lost_device_prints_one_line_and_exits_1(
    vulkan_driver: PhysicalDevice, qwen3: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checked = loader._check_result
    submits = 0

    def lose_device_after(name: str, function: object) -> object:
        call = checked(name, function)

        def fail_after_submits(*arguments: object) -> int:
            nonlocal submits
            submits += 1
            if submits > 30:
                raise VulkanError(-4, name)
            result: int = call(*arguments)
            return result

        return fail_after_submits if name == "vkQueueSubmit" else call

    monkeypatch.setattr(loader, "_check_result", lose_device_after)
    code, output = run_model(qwen3, capsys)
    assert code == 1, output
    assert re.search(r"zinc-rt run: .*was lost with the device", output), output
    assert "next: see the kernel log (dmesg) for the cause" in output


def test_too_small_heap_is_rejected_with_sizes(
    vulkan_driver: PhysicalDevice, qwen3: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = physical_device.query_device

    def small_heaps(*arguments: object) -> PhysicalDevice:
        result = ask(*arguments)  # type: ignore[arg-type]
        heaps = tuple(MemoryHeap(1 << 20, heap.device_local) for heap in result.heaps)
        return replace(result, heaps=heaps, extensions=result.extensions - {"VK_EXT_memory_budget"})

    monkeypatch.setattr(device.physical_device, "query_device", small_heaps)
    code, output = run_model(qwen3, capsys)
    assert code == 2, output
    assert re.search(r"zinc-rt run: .* takes .*MiB, .* has .* left; resident: ", output), output


def test_driver_with_wrong_bits_is_rejected_with_operation_name(
    vulkan_driver: PhysicalDevice, qwen3: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operation = self_test_cases.OPERATIONS[4]
    wrong = self_test_cases.WrongBits(operation, 1, 4096, (0x3F800000, 0x40400000), 0x3EAAAAAB, 0x3EAAAAAA)
    monkeypatch.setattr(self_test, "find_differences", lambda backend: (wrong,))
    monkeypatch.setattr(self_test.ObjectCache, "load", lambda self, key: None)
    code, output = run_model(qwen3, capsys)
    assert code == 2 and f"its driver computes different bits: {operation.name}: 1 of 4096 wrong" in output, output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tier", "vulkan:0"], "--device vulkan:0"),
        (["--tier", "vulkan", "--ordering", "float32-dequant"], "vulkan supports canonical-1"),
        (["--device", "vulkan:99"], "--device vulkan:99: no such device; there "),
        (["--device", "vulkan:voodoo"], "the name matches no device"),
        (["--device", "vulkan:0", "--tier", "t_cpu"], "--device vulkan:0 belongs to tier vulkan, not to t_cpu"),
    ],
)
def test_unsupported_options_are_rejected_before_loading(
    vulkan_driver: PhysicalDevice, qwen3: str, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    code, output = run_model(qwen3, capsys, *options)
    assert code == 2 and message in output and "next: " in output, output
