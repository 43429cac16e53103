"""Khronos' validation layers have nothing to say about the backend, and would tell a wrong call."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.vulkan import api, loader
from zinc_rt.backends.vulkan.device import PhysicalDevice

pytestmark = pytest.mark.rest

LAYER = "VK_LAYER_KHRONOS_validation"
TESTS = Path(__file__).resolve().parents[2]
SECONDS = 300.0


@pytest.fixture
def layer_environment(vulkan_driver: PhysicalDevice) -> str:
    vulkan, count = loader.load_vulkan(), ctypes.c_uint32()
    vulkan.vkEnumerateInstanceLayerProperties(byref(count), None)
    rows: Any = (api.find_struct_type("VkLayerProperties") * count.value)()
    vulkan.vkEnumerateInstanceLayerProperties(byref(count), rows)
    if LAYER.encode() not in {row.layerName for row in rows}:
        pytest.skip(f"no {LAYER}: apt install vulkan-validationlayers")
    return LAYER


def run_under_layers(layer: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("under_layers.py")), *arguments],
        env={
            **os.environ,
            "VK_INSTANCE_LAYERS": layer,
            "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS))),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("ran\n")
    return result.stdout.removesuffix("ran\n") + result.stderr


def test_layers_report_nothing_for_valid_calls(layer_environment: str) -> None:
    assert run_under_layers(layer_environment) == ""


def test_layers_report_an_invalid_call(layer_environment: str) -> None:
    assert "VUID-vkCmdFillBuffer-dstOffset-00025" in run_under_layers(layer_environment, "wrong")
