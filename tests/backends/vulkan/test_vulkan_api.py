"""The structs and functions of Vulkan: as the C headers lay them out, and as vk.xml has them today."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from zinc_rt.backends.vulkan import api, vk_xml

HERE = Path(__file__).parent
GENERATOR = HERE.parents[2] / "ci" / "vulkan_api.py"
SIZES: dict[str, int] = json.loads((HERE / "struct_sizes.json").read_text())


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vulkan_api", GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vulkan_api"] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


def test_struct_sizes_match_a_c_compiler() -> None:
    """struct_sizes.json holds sizeof() of vulkan.h on a 64-bit machine."""
    result = {name: ctypes.sizeof(api.find_struct_type(name)) for name in api.STRUCTS if name in SIZES}
    assert result == SIZES
    assert {name for name in api.STRUCTS if name not in SIZES} == {
        "VkPipelineExecutableStatisticValueKHR"
    }  # a union


def test_every_command_has_a_function_type() -> None:
    assert all(api.find_function_type(name) for name in api.COMMANDS)


def test_struct_sets_its_type_and_keeps_referenced_objects_alive() -> None:
    struct = api.make_struct(
        "VkInstanceCreateInfo", pApplicationInfo=api.make_struct("VkApplicationInfo", apiVersion=5)
    )
    inner = api.find_struct_type("VkApplicationInfo").from_address(struct.pApplicationInfo)
    assert (struct.sType, inner.sType, inner.apiVersion) == (1, 0, 5)
    second, third = (
        api.make_struct("VkPhysicalDeviceVulkan11Features"),
        api.make_struct("VkPhysicalDeviceVulkan12Features"),
    )
    first = api.link_structs(api.make_struct("VkPhysicalDeviceFeatures2"), second, third)
    assert (first.pNext, second.pNext) == (ctypes.addressof(second), ctypes.addressof(third))


def test_unknown_struct_member_is_rejected() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        api.make_struct("VkInstanceCreateInfo", colour=1)


def test_generated_data_matches_vk_xml() -> None:
    result = load_generator()
    if not result.REGISTRY.is_file():
        pytest.skip(f"no {result.REGISTRY}: apt install libvulkan-dev")
    text = result.generated(result.REGISTRY)
    here, there = (text.splitlines()[0] for text in (text, Path(vk_xml.__file__).read_text(encoding="utf-8")))
    if here != there:
        pytest.skip(f"another vk.xml: {here}")
    names = {}
    exec(compile(text, "vk_xml.py", "exec"), names)
    assert {k: v for k, v in names.items() if k.isupper()} == {
        k: v for k, v in vars(vk_xml).items() if k.isupper()
    }
