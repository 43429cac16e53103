"""Calls of every function of exec.h with one wrong argument each, generated from the header.

As a program, for a library that was compiled with sanitizers: python bad_calls.py LIBRARY FOLDER
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.engine.image import IMAGE, KERNELS
from zinc_rt.exec.abi import CParameter, ExecLibrary, fill_struct, list_functions, load_structs, make_key

KEY = make_key(1, 1, 1)
SECOND = 10**9
HANDLES = ("context", "buffer", "stream", "event", "graph", "plan", "image", "capsule")
STRUCTS = ("zrt_context_options", "zrt_ring", "zrt_program")  # with a size that is checked
# Arguments of which every value is right: null where the header allows it, priorities, keys of programs that may
# be added later, sizes of the caller's own memory.
ANY = {
    "image_open.model", "stream_create.priority", "graph_adopt.key", "plan_add.key", "capsule_take.note",
    "capsule_take.note_bytes", "capsule_take.group_count", "capsule_restore.group_count", "capsule_note.note",
    "capsule_note.capacity_bytes", "graph_keys.keys", "graph_keys.capacity",
}  # fmt: skip
NUMBERS = {  # valid ones by parameter; 0 for others
    "key": KEY, "size_bytes": 64, "max_variants": 2, "group_count": 1, "capacity": 8, "step": 1, "note_bytes": 4,
    "capacity_bytes": 64, "timeout_ns": SECOND,
}  # fmt: skip
TOO_LARGE = {
    "offset_bytes", "source_offset_bytes", "target_offset_bytes", "size_bytes", "step", "earlier", "max_variants"
}  # fmt: skip


@dataclass(slots=True)
class HandleSets:
    """One object of each kind in a context with an image, one of another context, and one that was destroyed."""

    live: dict[str, int]
    foreign: dict[str, int]
    destroyed: dict[str, int]
    folder: Path

    @staticmethod
    def make(library: ExecLibrary, folder: Path) -> HandleSets:
        live, foreign, destroyed = (_make_objects(library, folder) for _ in range(3))
        library.call("context_destroy", destroyed["context"])
        return HandleSets(live, foreign, destroyed, folder)


def _make_objects(library: ExecLibrary, folder: Path) -> dict[str, int]:
    call = library.call
    context = call("context_create", {"threads": 1, "kernels": folder / KERNELS})
    image = call("image_open", context, folder / IMAGE, None)
    made: dict[str, int] = {
        "context": context,
        "image": image,
        "buffer": call("buffer_create", context, "work", 4096),
        "source": call("buffer_create", context, "source", 4096),
        "stream": call("stream_create", context, "main", 0),
        "event": call("event_create", context),
        "graph": call("image_graph", image, "decode"),
        "plan": call("plan_create", context),
        "capsule": library.take_capsule(image, {"pages_0": [0]}, b"note"),
    }
    call("event_record", made["event"], made["stream"])
    for _ in range(2):
        call("plan_add", made["plan"], made["graph"], KEY, made["stream"])
    return made


def make_ring(room: Any) -> ctypes.Structure:
    """Return an idle ring of 64 dwords in zeroed memory."""
    at = ctypes.addressof(room) + -ctypes.addressof(room) % 64
    places = {"ring": at, "wptr": at + 256, "doorbell": at + 264, "rptr": at + 272, "fence": at + 280}
    return fill_struct("zrt_ring", {**places, "ring_dw": 64, "full_timeout_ns": 1000})


class ValidArguments:
    """Arguments with which a function succeeds. The object keeps alive what they point to."""

    def __init__(self, name: str, objects: HandleSets) -> None:
        self._name, self._objects = name.removeprefix("zrt_"), objects
        self._room = ctypes.create_string_buffer(4096)
        self._numbers = (ctypes.c_uint32 * 1)(0)
        self.values = [self._make_value(parameter) for parameter in list_functions()[name]]

    def _make_value(self, parameter: CParameter) -> Any:
        kind = parameter.type.removeprefix("zrt_")
        if parameter.returned:
            return ctypes.byref((ctypes.c_uint64 * 8)())
        if not parameter.pointer and kind in HANDLES:
            unbound = parameter.name == "source" or self._name == "buffer_destroy"
            return self._objects.live["source" if unbound else kind]
        if not parameter.pointer:
            return NUMBERS.get(parameter.name, 0) + (self._name == "graph_adopt")
        if parameter.type == "char":
            return self._choose_text(parameter.name)
        address = ctypes.addressof(self._room)
        if parameter.type == "zrt_ring":
            return ctypes.byref(make_ring(self._room))
        if parameter.type == "zrt_program":
            return ctypes.byref(fill_struct(parameter.type, {"kind": 1, "tasks": address}))
        if parameter.type == "zrt_units":
            fields = {"group": "pages_0", "units": ctypes.addressof(self._numbers), "count": 1}
            return ctypes.byref(fill_struct(parameter.type, fields))
        return ctypes.byref(fill_struct(parameter.type, {})) if parameter.type in STRUCTS else address

    def _choose_text(self, parameter: str) -> bytes | None:
        folder = self._objects.folder
        texts = {
            "image_open.path": str(folder / IMAGE),
            "image_open.model": None,
            "image_graph.name": "decode",
            "image_buffer.name": "table/state.page_table",
            "image_property.name": "ctx",
            "graph_port.port": "step.counts",
            "capsule_units.group": "pages_0",
            "capsule_read.path": str(folder / "x.zcap"),
            "capsule_write.path": str(folder / "x.zcap"),
        }
        text = texts.get(f"{self._name}.{parameter}", "some name")
        return None if text is None else text.encode()


def list_bad_values(name: str, parameter: CParameter, objects: HandleSets) -> Iterator[tuple[str, Any]]:
    """Yield wrong values of a parameter with a description."""
    kind = parameter.type.removeprefix("zrt_")
    if f"{name.removeprefix('zrt_')}.{parameter.name}" in ANY:
        return
    if parameter.pointer:
        yield "null", None
        if parameter.type == "char":
            yield "empty", b""
            yield "too long", b"x" * 5000
        if parameter.type in STRUCTS:
            yield "of another size", ctypes.byref(load_structs()[parameter.type]())
    elif kind in HANDLES:
        yield "zero", 0
        yield "all bits", (1 << 64) - 1
        yield "destroyed", objects.destroyed[kind]
        yield "of another kind", objects.live["buffer" if kind == "event" else "event"]
        yield "of another generation", objects.live[kind] ^ 1 << 40
        others = [item for item in list_functions()[name] if not item.pointer and item.type[4:] in HANDLES]
        if len(others) > 1:
            yield "of another context", objects.foreign[kind]
    elif parameter.name in TOO_LARGE:
        yield "too large", (1 << (64 if parameter.type == "uint64_t" else 32)) - 1
    elif parameter.name == "key":
        yield "without a program", KEY + 1


def run_bad_calls(library: ExecLibrary, folder: Path) -> tuple[int, list[str]]:
    """Make every bad call. Return their number, and those that did not return an error with a message."""
    objects = HandleSets.make(library, folder)
    wrong, count = [], 0
    for name, parameters in list_functions().items():
        for number, parameter in enumerate(parameters):
            for what, value in list_bad_values(name, parameter, objects):
                valid = ValidArguments(name, objects)
                status = library.functions[name](*valid.values[:number], value, *valid.values[number + 1 :])
                count += 1
                if not status or not library.error(status).message:
                    wrong.append(f"{name}: {parameter.name} {what}")
    for of in (objects.live, objects.foreign):
        library.call("context_destroy", of["context"])
    return count, wrong


def run_valid_calls(library: ExecLibrary, folder: Path) -> list[str]:
    """Call every function with valid arguments, those that destroy an object last. Return the failures."""
    objects = HandleSets.make(library, folder)
    ends, wrong = ("_remove", "_destroy", "_close"), []
    rank = {
        name: (name == "zrt_context_destroy", name.endswith(ends[1:]), name.endswith(ends))
        for name in list_functions()
    }
    room = ctypes.create_string_buffer(4096)
    for name in sorted(rank, key=rank.__getitem__):
        valid = ValidArguments(name, objects)
        if name == "zrt_ring_position":
            ring = ctypes.byref(make_ring(room))
            valid.values[0] = library.call("stream_open_ring", objects.live["context"], "ring", ring)
        if status := library.functions[name](*valid.values):
            wrong.append(f"{name}: {library.error(status)}")
    library.call("context_destroy", objects.foreign["context"])
    return wrong


if __name__ == "__main__":
    loaded, files = ExecLibrary(sys.argv[1]), Path(sys.argv[2])
    number, failures = run_bad_calls(loaded, files)
    print(number, *failures, *run_valid_calls(loaded, files))
