"""The house keeps its shape: what pyproject lists is what there is, and rooms import only what they may."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HARNESS = ("golden", "perf", "probes", "replay", "trace", "validate")

# A room of the runtime -> the rooms it may import, besides itself and what everybody may. A room's own tests and
# the files directly in zinc_rt/ (engine, command line, settings) are above all of them.
MAY_IMPORT: dict[str, set[str]] = {
    "ir": set(),
    "kernels": {"ir", "isa"},  # isa: the assembler reads code objects, the .zrt header knows occupancy
    "mem": {"ir"},
    "exec": set(),
    "lower": {"ir", "kernels", "mem"},
    "pm4": set(),
    "kmd": set(),
    "isa": set(),
    "sim": {"kmd", "pm4", "isa"},
    "backends": {"exec", "lower", "kernels", "pm4", "kmd", "ir", "mem"},
    "model": {"ir", "kernels"},
}
EVERYBODY = {"errors", "folders"}


def modules(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> Iterator[str]:
    """Every zinc_rt module a file imports at run time, wherever in the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
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
    return sorted(
        path.name
        for path in (ROOT / "zinc_rt").iterdir()
        if path.is_dir() and not path.is_symlink() and any(modules(path)) and path.name != "commands"
    )


def test_pyproject_lists_every_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    runtime = {
        ".".join(("zinc_rt", *path.parent.relative_to(ROOT / "zinc_rt").parts))
        for path in modules(ROOT / "zinc_rt")
    }
    harness = {f"zinc_rt.{name}" for name in HARNESS if any(modules(ROOT / name))}
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
    allowed = MAY_IMPORT[room] | EVERYBODY | {room}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(ROOT / "zinc_rt" / room)
        for name in imported(path)
        if "." in name and name.split(".")[1] not in allowed
    ]
    assert not wrong


def test_the_runtime_names_no_harness_folder() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(ROOT / "zinc_rt")
        if not any(parent.is_symlink() for parent in path.parents)
        for name in imported(path)
        if "." in name and name.split(".")[1] in HARNESS
    ]
    assert not wrong


def test_there_are_no_import_cycles_between_files() -> None:
    graph: dict[str, set[str]] = {}
    for path in modules(ROOT / "zinc_rt"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = set(imported(path))
    known = set(graph)
    edges = {name: {t for t in targets if t in known and t != name} for name, targets in graph.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            raise AssertionError(" -> ".join((*trail[trail.index(name) :], name)))
        if name not in done:
            for target in sorted(edges[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(edges):
        visit(name, ())
