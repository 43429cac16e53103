"""Vulkan's structs and functions as ctypes types, created on first use, and its constants.

Their descriptions (`size:u64`) are in vk_xml.py, which ci/vulkan_api.py generates.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

from zinc_rt.backends.vulkan.vk_xml import *  # noqa: F403 - VK_...
from zinc_rt.backends.vulkan.vk_xml import COMMANDS, STRUCTS, STYPES

_SCALARS: dict[str, Any] = {
    "void": None,
    "char": ctypes.c_char,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "size": ctypes.c_size_t,
    "ptr": ctypes.c_void_p,
    "str": ctypes.c_char_p,
}


class VulkanStruct(ctypes.Structure):
    """A struct that keeps the targets of its pointers alive. Only members that Vulkan defines can be set."""

    __slots__ = ("_held",)


class VulkanUnion(ctypes.Union):
    __slots__ = ()


@cache
def find_struct_type(name: str) -> type[VulkanStruct]:
    """Return the ctypes type of a struct. Raise KeyError if ci/vulkan_api.py did not generate it."""
    members = [member.rpartition(":")[::2] for member in STRUCTS[name].split()]
    fields = [(called, _find_type(word)) for called, word in members]
    return type(name, (VulkanStruct,), {"__slots__": (), "_fields_": fields})


@cache
def _make_union_type(name: str) -> type[VulkanUnion]:
    members = [member.rpartition(":")[::2] for member in STRUCTS[name].split()]
    return type(
        name, (VulkanUnion,), {"__slots__": (), "_fields_": [(m, _find_type(word)) for m, word in members]}
    )


def _find_type(word: str) -> Any:
    base, *sizes = re.findall(r"[|\w]+", word)
    if base in _SCALARS:
        scalar = _SCALARS[base]
    else:
        scalar = _make_union_type(base[1:]) if base.startswith("|") else find_struct_type(base)
    for size in reversed(sizes):
        scalar = scalar * int(size)
    return scalar


def make_struct(name: str, **members: Any) -> Any:
    """Create a struct with its sType. A pointer member takes a ctypes object, which the struct keeps alive, or an
    address as int, which the caller keeps alive. Raise AttributeError for an unknown member."""
    instance: Any = find_struct_type(name)()
    if name in STYPES:
        instance.sType = STYPES[name]
    held = []
    for member, value in members.items():
        if isinstance(value, (ctypes.Structure, ctypes.Array, ctypes._SimpleCData)):
            held.append(value)
            if isinstance(getattr(instance, member), (int, type(None))):
                value = ctypes.addressof(value)
        setattr(instance, member, value)
    instance._held = held
    return instance


def link_structs(first: Any, *rest: Any) -> Any:
    """Link structs through pNext, starting with `first`. Each keeps the next alive."""
    left = first
    for item in rest:
        left.pNext = ctypes.addressof(item)
        left = item
    first._held = [*first._held, *rest]
    return first


@cache
def find_function_type(command: str) -> Any:
    """Return the ctypes type of a command's function. Raise KeyError if ci/vulkan_api.py did not generate it."""
    return ctypes.CFUNCTYPE(*(_find_type(word) for word in COMMANDS[command].split()))
