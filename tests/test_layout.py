"""The house keeps its shape: what pyproject lists is what there is, and rooms import only what they may."""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from zinc_rt import code_version
from zinc_rt import rooms as rooms_of_the_package
from zinc_rt.rooms import EVERYBODY, HARNESS, ROOMS, SUFFIXES

ROOT = Path(__file__).resolve().parent.parent


def modules(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path, *, types: bool = False) -> Iterator[str]:
    """Every zinc_rt module a file imports at run time, wherever in the file; with `types` also for annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only and not types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("zinc_rt"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zinc_rt"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else str(node.module)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def rooms() -> list[str]:
    """Folders, and files beside them."""
    there = [path for path in (ROOT / "zinc_rt").iterdir() if not path.is_symlink()]
    folders = {path.name for path in there if path.is_dir() and any(modules(path))}
    return sorted(folders | {path.stem for path in there if path.suffix == ".py"} - {"__init__"})


def files(room: str) -> list[Path]:
    folder = ROOT / "zinc_rt" / room
    return list(modules(folder)) if folder.is_dir() else [folder.with_suffix(".py")]


def test_pyproject_lists_every_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    runtime = {
        ".".join(("zinc_rt", *path.parent.relative_to(ROOT / "zinc_rt").parts))
        for path in modules(ROOT / "zinc_rt")
    }
    harness = {
        ".".join(("zinc_rt", *path.parent.relative_to(ROOT).parts))
        for name in HARNESS
        for path in modules(ROOT / name)
    }
    assert listed == {name.rstrip(".") for name in runtime} | harness


@pytest.mark.parametrize("name", HARNESS)
def test_a_harness_folder_is_linked_into_the_package(name: str) -> None:
    if not (ROOT / name).is_dir():
        assert not (ROOT / "zinc_rt" / name).exists()
        return
    link = ROOT / "zinc_rt" / name
    assert link.is_symlink() and link.readlink() == Path("..") / name
    assert not (ROOT / name / "__init__.py").exists(), "a top-level package of this name would shadow others"


@pytest.mark.parametrize("room", rooms())
def test_a_room_imports_only_what_it_may(room: str) -> None:
    assert room in ROOMS, f"zinc_rt/rooms.py has no row for {room}"
    allowed = ROOMS[room].imports | EVERYBODY | {room}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(room)
        for name in imported(path)
        if "." in name and name.split(".")[1] not in allowed
    ]
    assert not wrong


# What the simulated device may take of the runtime's side: names, chips' generations, the seam both stand at
SEAM = {"zinc_rt.kmd.driver", "zinc_rt.kmd.linux", "zinc_rt.pm4.generation"}
NAMES_ONLY = {
    "sim.cp.stop_report": {"zinc_rt.pm4.disassemble"},  # shows the dwords of a queue that has stopped
    "sim.cp.decode": {"zinc_rt.pm4.opcodes"},  # names another engine's packet, at which the queue stops either way
}


def test_the_simulated_device_reads_by_tables_of_its_own() -> None:
    """Else a wrong offset, opcode or default of the runtime would be the device's, too, and pass."""
    wrong = []
    for path in files("sim"):
        module = ".".join(path.relative_to(ROOT / "zinc_rt").with_suffix("").parts)
        allowed = SEAM | NAMES_ONLY.get(module, set())
        for name in imported(path, types=True):
            of_the_runtime = name.startswith(("zinc_rt.kmd", "zinc_rt.pm4"))
            if of_the_runtime and not any(name.startswith(each) for each in allowed):
                wrong.append(f"{module}: {name}")
    assert not wrong


def test_rooms_that_decide_values_import_only_such_and_those_that_talk_to_devices() -> None:
    """Else a change elsewhere could change a value unseen."""
    harmless = {"isa", "pm4", "kmd", "spirv", "settings", "devices"} | EVERYBODY
    for name, room in ROOMS.items():
        if room.computes:
            assert {other for other in room.imports if not ROOMS[other].computes} <= harmless, name


def test_every_kind_of_package_data_counts_for_the_version_of_the_code() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [pattern for name, each in data.items() if name.split(".")[1:2] != [] for pattern in each]
    of_rooms = [p for name, each in data.items() if not {*name.split(".")} & {*HARNESS} for p in each]
    assert patterns and {Path(p).suffix for p in of_rooms} - {".typed"} <= set(SUFFIXES)


def test_a_changed_kernel_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(
        ROOT / "zinc_rt" / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(rooms_of_the_package, "ROOT", tmp_path)
    monkeypatch.setattr(code_version, "ROOT", tmp_path)
    seen = set()
    for name in ("reference/table.py", "gfx1201/built/add.zrt", "gfx1201/add.s"):
        code_version.code_version.cache_clear()
        seen.add(code_version.code_version())
        (tmp_path / "kernels" / name).write_bytes(b"other")
    code_version.code_version.cache_clear()
    assert len(seen | {code_version.code_version()}) == 4
    code_version.code_version.cache_clear()


def test_the_runtime_names_no_harness_folder() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(ROOT / "zinc_rt")
        if not any(parent.is_symlink() for parent in path.parents)
        for name in imported(path)
        if "." in name and name.split(".")[1] in HARNESS
    ]
    assert not wrong


def import_graph() -> dict[str, set[str]]:
    """Of every file, the harness's included: what it imports, by name below zinc_rt."""
    paths = [*modules(ROOT / "zinc_rt"), *(path for name in HARNESS for path in modules(ROOT / name))]
    graph: dict[str, set[str]] = {}
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part not in ("zinc_rt", "__init__"))
        graph[name] = {each.removeprefix("zinc_rt.") for each in imported(path, types=True)}
    return {name: {t for t in targets if t in graph and t != name} for name, targets in graph.items()}


def knots(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of files of which each imports all others, directly or not."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in graph[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        return seen

    reach = {name: reached(name) for name in graph}
    return {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }


def test_no_files_import_each_other() -> None:
    """Not for type annotations either: such files are one file in several."""
    assert not knots(import_graph())
