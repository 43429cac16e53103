"""The execution contract's C library from Python: the functions of exec.h by name, with errors as exceptions.

    library = ExecLibrary(path)
    context = library.call("context_create", {"threads": 2, "kernels": kernels})
    stream = library.call("stream_create", context, "main", 0)

The header is the only declaration: parameters, structs and constants are read from it. Handles are int. The last
parameters that a function writes through pointers are left out of a call and returned.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import ZincError

FOLDER = Path(__file__).parent / "c"
HEADER = FOLDER / "exec.h"
SCALARS: dict[str, Any] = {
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "char*": ctypes.c_char_p,
    "zrt_status": ctypes.c_int,
    **{
        f"zrt_{name}": ctypes.c_uint64
        for name in ("context", "buffer", "stream", "event", "graph", "plan", "image", "capsule")
    },
}


class ExecError(ZincError):
    """Raised if a function of the library returns an error. `status` is its name, such as ZRT_ERR_RANGE."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True)
class CParameter:
    """A parameter. `type`: without const and *; `pointer`: it is an address, of an `array`, or of what the
    function only reads (`const`)."""

    name: str
    type: str
    pointer: bool
    const: bool
    array: bool

    @property
    def returned(self) -> bool:
        """Return whether a call leaves it out: one handle, number or struct that the function writes."""
        written = self.pointer and not self.const and not self.array
        return written and (self.type in SCALARS or self.type == "zrt_port")


@cache
def read_header() -> str:
    """Return exec.h without comments."""
    return re.sub(r"//[^\n]*", "", HEADER.read_text(encoding="ascii"))


@cache
def list_functions() -> dict[str, tuple[CParameter, ...]]:
    """Return the parameters of each function that returns a status, by name."""
    found = re.findall(r"^zrt_status (zrt_\w+)\((.*?)\);", read_header(), re.MULTILINE | re.DOTALL)
    return {name: tuple(_parse_parameter(part) for part in text.split(",")) for name, text in found}


@cache
def list_constants() -> dict[str, int]:
    """Return ZRT_ABI and the numbers of the enums, by name."""
    header = read_header()
    numbers = re.findall(r"(ZRT_\w+)\s*=\s*(\d+)", header) + re.findall(r"#define (ZRT_ABI) (\d+)", header)
    return {name: int(value) for name, value in numbers}


@cache
def load_structs() -> dict[str, type[ctypes.Structure]]:
    """Return the structs of the header, by name."""
    structs = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (zrt_\w+);", read_header(), re.DOTALL):
        fields: list[tuple[str, Any]] = []
        for line in filter(None, (line.strip() for line in body.replace("\n", " ").split(";"))):
            if callback := re.match(r"void \(\*(\w+)\)", line):
                fields.append((callback[1], ctypes.c_void_p))
                continue
            kind, _, names = re.sub(r"^const ", "", line).partition(" ")
            for item in names.split(","):
                pointer = "*" in item
                text = kind == "char" and pointer
                fields.append(
                    (item.strip(" *"), ctypes.c_char_p if text else ctypes.c_void_p if pointer else SCALARS[kind])
                )
        structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return structs


def make_key(first: int, second: int, third: int) -> int:
    """Return ZRT_KEY of three numbers. Raise ValueError for one that does not fit."""
    for value, bits in ((first, 20), (second, 20), (third, 24)):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"key ({first}, {second}, {third}): {value} is not in 0 .. {(1 << bits) - 1}")
    return first | second << 20 | third << 40


class ExecLibrary:
    """The loaded library. Raise ExecError if it has another ABI version than the header."""

    def __init__(self, path: str | Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.zrt_last_error.restype = ctypes.c_char_p
        self._library.zrt_status_text.restype = ctypes.c_char_p
        version, expected = self._library.zrt_abi_version(), list_constants()["ZRT_ABI"]
        if version != expected:
            raise ExecError("ZRT_ERR_VERSION", f"{path} has ABI {version}, expected {expected}")
        self.functions = {name: self._declare(name) for name in list_functions()}

    def call(self, name: str, *arguments: Any) -> Any:
        """Call zrt_`name`. A mapping becomes a struct whose `size_bytes` is set; str and Path become char*. Return
        what the function wrote: None, one value, or a tuple. Raise ExecError.
        """
        parameters = list_functions()[f"zrt_{name}"]
        written = [_make_output(parameter) for parameter in parameters if parameter.returned]
        given, outputs = iter(arguments), iter(written)
        values = [next(outputs) if item.returned else _convert(item, next(given)) for item in parameters]
        status = self.functions[f"zrt_{name}"](
            *(ctypes.byref(value) if _is_struct(value) else value for value in values)
        )
        if status:
            raise self.error(status)
        results = tuple(value if isinstance(value, ctypes.Structure) else value.value for value in written)
        return results[0] if len(results) == 1 else results or None

    def take_capsule(self, image: int, units: Mapping[str, Sequence[int]], note: bytes = b"") -> int:
        """Return a capsule of these units of an image's state, by group."""
        groups, _keeps = _make_units(units)
        return int(self.call("capsule_take", image, groups, len(groups), note, len(note)))

    def restore_capsule(self, capsule: int, units: Mapping[str, Sequence[int]]) -> None:
        """Write a capsule into these units, as many of each group as it has."""
        groups, _keeps = _make_units(units)
        self.call("capsule_restore", capsule, groups, len(groups))

    def error(self, status: int) -> ExecError:
        """Return the exception of a status, with the message of this thread's last failed call."""
        return ExecError(
            self._library.zrt_status_text(status).decode(), self._library.zrt_last_error().decode(errors="replace")
        )

    def _declare(self, name: str) -> Any:
        function = getattr(self._library, name)
        function.argtypes = [_find_type(parameter) for parameter in list_functions()[name]]
        return function


def _parse_parameter(text: str) -> CParameter:
    array, const = "[]" in text, text.strip().startswith("const")
    words = re.sub(r"\bconst\b|\[\]", " ", text).replace("*", " * ").split()
    return CParameter(words[-1], words[0], "*" in words or array, const, array)


def _find_type(parameter: CParameter) -> Any:
    if not parameter.pointer:
        return SCALARS[parameter.type]
    return ctypes.c_char_p if parameter.type == "char" else ctypes.c_void_p


def _is_struct(value: Any) -> bool:
    return isinstance(value, ctypes.Structure | ctypes._SimpleCData)


def _make_output(parameter: CParameter) -> Any:
    return load_structs()[parameter.type]() if parameter.type == "zrt_port" else SCALARS[parameter.type]()


def _convert(parameter: CParameter, value: Any) -> Any:
    if isinstance(value, Mapping):
        return fill_struct(parameter.type, value)
    if isinstance(value, str | Path):
        return str(value).encode()
    if isinstance(value, bytearray | memoryview):
        return (ctypes.c_char * len(value)).from_buffer(value)
    return value


def _make_units(units: Mapping[str, Sequence[int]]) -> tuple[Any, list[Any]]:
    """Return the zrt_units of these groups, and what they point to."""
    groups = (load_structs()["zrt_units"] * len(units))()
    arrays = [(ctypes.c_uint32 * len(numbers))(*numbers) for numbers in units.values()]
    for entry, group, array in zip(groups, units, arrays, strict=True):
        entry.group, entry.units, entry.count = group.encode(), ctypes.addressof(array), len(array)
    return groups, arrays


def fill_struct(name: str, values: Mapping[str, Any]) -> ctypes.Structure:
    """Return a struct of the header with these fields. `size_bytes` is set where the struct has one."""
    struct = load_structs()[name]()
    if hasattr(struct, "size_bytes"):
        struct.size_bytes = ctypes.sizeof(struct)
    for field, value in values.items():
        setattr(struct, field, str(value).encode() if isinstance(value, str | Path) else value)
    return struct
