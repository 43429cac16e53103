"""The layout: pyproject lists the packages that exist, and each package imports only what its row allows."""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from zinc_rt.host import packages as package_table
from zinc_rt.host import version
from zinc_rt.host.packages import EVERYWHERE, HARNESS, HARNESS_API, PACKAGES, SUFFIXES
from zinc_rt.kernels.sets import SETS

ROOT = Path(__file__).resolve().parent.parent


def module_names(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def imported_modules(path: Path, *, types: bool = False) -> Iterator[str]:
    """Return every zinc_rt module that a file imports at run time, anywhere in the file; with `types`, also
    imports for annotations.
    """
    return (name for name, typing_only in parse_imports(path) if types or not typing_only)


@cache
def parse_imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Yield the modules, and whether only annotations need them."""
    result: list[tuple[str, bool]] = []
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), False)]
    while waiting:
        node, typing_only = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typing_only = True
        if isinstance(node, ast.Import):
            result += [(alias.name, typing_only) for alias in node.names if alias.name.startswith("zinc_rt")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zinc_rt"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                result.append((inner if is_module(inner) else str(node.module), typing_only))
        elif isinstance(
            node, ast.stmt | ast.ExceptHandler | ast.Module | ast.match_case
        ):  # expressions import nothing
            waiting.extend((child, typing_only) for child in ast.iter_child_nodes(node))
    return tuple(result)


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def list_units() -> list[str]:
    """The packages and loose modules of the runtime, without __init__.py and harness.py."""
    paths = [path for path in (ROOT / "zinc_rt").iterdir() if not path.is_symlink()]
    folders = {path.name for path in paths if path.is_dir() and any(module_names(path))}
    return sorted(folders | {path.stem for path in paths if path.suffix == ".py"} - {"__init__", HARNESS_API})


def unit_files(unit: str) -> list[Path]:
    folder = ROOT / "zinc_rt" / unit
    return list(module_names(folder)) if folder.is_dir() else [folder.with_suffix(".py")]


def test_pyproject_lists_every_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    runtime = {
        ".".join(("zinc_rt", *path.parent.relative_to(ROOT / "zinc_rt").parts))
        for path in module_names(ROOT / "zinc_rt")
    }
    harness = {
        ".".join(("zinc_rt", *path.parent.relative_to(ROOT).parts))
        for name in HARNESS
        for path in module_names(ROOT / name)
    }
    assert listed == {name.rstrip(".") for name in runtime} | harness


@pytest.mark.parametrize("name", HARNESS)
def test_harness_folder_is_linked_into_the_package(name: str) -> None:
    if not (ROOT / name).is_dir():
        assert not (ROOT / "zinc_rt" / name).exists()
        return
    link = ROOT / "zinc_rt" / name
    assert link.is_symlink() and link.readlink() == Path("..") / name
    assert not (ROOT / name / "__init__.py").exists(), "a top-level package of this name would shadow others"


@pytest.mark.parametrize("unit", [name for name in list_units() if name != "_moved"])
def test_package_imports_only_allowed_packages(unit: str) -> None:
    assert unit in PACKAGES, f"zinc_rt/host/packages.py has no row for {unit}"
    allowed = PACKAGES[unit].imports | EVERYWHERE | {unit}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in unit_files(unit)
        for name in imported_modules(path, types=True)
        if name.partition(".")[2].partition(".")[0] not in allowed
    ]
    assert not wrong


def test_package_table_rows_exist_and_import_only_from_rows_above() -> None:
    above: set[str] = set()
    for name, package in PACKAGES.items():
        assert unit_files(name), name
        assert package.imports <= above, name
        above.add(name)


# What the simulated device may take of the runtime's side: names, chips' generations, the seam both stand at
SEAM = {"zinc_rt.kmd.driver", "zinc_rt.kmd.linux", "zinc_rt.pm4.generation"}
NAMES_ONLY = {
    "sim.cp.stop_report": {"zinc_rt.pm4.disassemble"},  # shows the dwords of a queue that has stopped
    "sim.cp.decode": {"zinc_rt.pm4.opcodes"},  # names another engine's packet, at which the queue stops either way
}


def test_simulated_device_uses_independent_decoding_tables() -> None:
    """Else a wrong offset, opcode or default of the runtime would be the device's, too, and pass."""
    wrong = []
    for path in unit_files("sim"):
        module = ".".join(path.relative_to(ROOT / "zinc_rt").with_suffix("").parts)
        allowed = SEAM | NAMES_ONLY.get(module, set())
        for name in imported_modules(path, types=True):
            of_the_runtime = name.startswith(("zinc_rt.kmd", "zinc_rt.pm4"))
            if of_the_runtime and not any(name.startswith(item) for item in allowed):
                wrong.append(f"{module}: {name}")
    assert not wrong


SHADER = ("emit", "checks", "memory", "alu", "translate", "run")
"""sub-packages of sim/shader from the lowest to the highest; modules directly in it are below all of them"""


def test_shader_engine_imports_downwards_only() -> None:
    """Annotations count too."""
    folder = ROOT / "zinc_rt" / "sim" / "shader"
    assert {path.name for path in folder.iterdir() if path.is_dir() and any(module_names(path))} == set(SHADER)
    upward = []
    for path in module_names(folder):
        package = path.relative_to(folder).parts[0]
        rank = SHADER.index(package) if package in SHADER else -1
        for name in imported_modules(path, types=True):
            target = name.removeprefix("zinc_rt.sim.shader.").split(".")[0]
            if target in SHADER and SHADER.index(target) > rank:
                upward.append(f"{path.relative_to(folder)}: {name}")
    assert not upward


def test_computing_packages_import_only_computing_or_device_packages() -> None:
    """Else a change elsewhere could change a value unseen."""
    harmless = {"isa", "pm4", "kmd", "sim"} | EVERYWHERE
    for name, package in PACKAGES.items():
        if package.computes:
            assert {other for other in package.imports if not PACKAGES[other].computes} <= harmless, name


def test_only_engine_devices_module_imports_the_simulated_device() -> None:
    wrong = [
        path.name for path in unit_files("engine") if any("zinc_rt.sim" in name for name in imported_modules(path))
    ]
    assert wrong == ["devices.py"]


def test_code_version_covers_every_kind_of_package_data() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [pattern for name, item in data.items() if name.split(".")[1:2] != [] for pattern in item]
    of_rooms = [p for name, item in data.items() if not {*name.split(".")} & {*HARNESS} for p in item]
    assert patterns and {Path(p).suffix for p in of_rooms} - {".typed"} <= set(SUFFIXES)


def test_changed_kernel_changes_code_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(
        ROOT / "zinc_rt" / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(package_table, "ROOT", tmp_path)
    monkeypatch.setattr(version, "ROOT", tmp_path)
    seen = set()
    for name in ("reference/table.py", "gfx1201/built/add.zrt", "gfx1201/add.s"):
        version.digest_code.cache_clear()
        seen.add(version.digest_code())
        (tmp_path / "kernels" / name).write_bytes(b"other")
    version.digest_code.cache_clear()
    assert len(seen | {version.digest_code()}) == 4
    version.digest_code.cache_clear()


def test_files_of_planners_and_oracle_exist() -> None:
    """Else a plan or a verdict of other code would be taken for one of this code."""
    assert [name for name in (*version.PLANNERS, *version.ORACLE) if not any(package_table.list_files(name))] == []
    assert any(file.name == "canonical.py" for name in version.ORACLE for file in package_table.list_files(name))


def test_planning_version_covers_all_that_planning_imports() -> None:
    """Else a stored graph of older code would be taken for one of this code."""
    roots = ["engine.variants", "engine.graph_store", "engine.resident", *(name[8:] for name in SETS.values())]
    waiting, reached = [f"zinc_rt.{name}" for name in roots], set[Path]()
    while waiting:
        path = ROOT.joinpath(*waiting.pop().split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if path.exists() and path not in reached:
            reached.add(path)
            waiting += imported_modules(path)
    covered = {file for name in version.PLANNERS for file in package_table.list_files(name)}
    loose = {ROOT / "zinc_rt" / "__init__.py"}
    assert len(reached) > 100 and {"fuse.py", "planned_graph.py"} <= {path.name for path in reached}
    assert sorted(str(path) for path in reached - covered - loose) == []


def test_runtime_names_no_harness_folder() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in module_names(ROOT / "zinc_rt")
        if not any(parent.is_symlink() for parent in path.parents) and path.name != f"{HARNESS_API}.py"
        for name in imported_modules(path)
        if "." in name and name.split(".")[1] in HARNESS
    ]
    assert not wrong


def test_nothing_imports_the_interface_of_the_harness() -> None:
    """Except __init__.py for type checkers."""
    assert [name for name, targets in import_graph().items() if HARNESS_API in targets] == [""]


def import_graph() -> dict[str, set[str]]:
    """Return the imports of every file, including the harness, by name below zinc_rt."""
    paths = [*module_names(ROOT / "zinc_rt"), *(path for name in HARNESS for path in module_names(ROOT / name))]
    graph: dict[str, set[str]] = {}
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part not in ("zinc_rt", "__init__"))
        graph[name] = {item.removeprefix("zinc_rt.") for item in imported_modules(path, types=True)}
    return {name: {t for t in targets if t in graph and t != name} for name, targets in graph.items()}


def import_cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return groups of files that all import each other, directly or indirectly."""

    def reachable_modules(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in graph[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        return seen

    reach = {name: reachable_modules(name) for name in graph}
    return {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }


def test_imports_are_acyclic() -> None:
    """Not for type annotations either: such files are one file in several."""
    assert not import_cycles(import_graph())


def unit_graph() -> dict[str, set[str]]:
    """The same for packages and single modules, including packages of the harness."""
    graph: dict[str, set[str]] = {}
    for name, targets in import_graph().items():
        unit = name.partition(".")[0]
        graph.setdefault(unit, set()).update({target.partition(".")[0] for target in targets} - {unit})
    return graph


def test_import_graph_is_small_and_shallow() -> None:
    graph = unit_graph()
    assert len(graph) <= 31 and not import_cycles(graph)
    layers: dict[str, int] = {}
    while len(layers) < len(graph):
        for unit, targets in graph.items():
            if unit not in layers and targets <= layers.keys():
                layers[unit] = 1 + max((layers[target] for target in targets), default=0)
    assert layers.pop(HARNESS_API) <= 13  # above everything that it calls
    layers.pop("")  # __init__.py imports it for type checkers
    assert max(layers.values()) <= 12, sorted(layers.items(), key=lambda item: item[1])
    assert len([unit for unit in list_units() if not (ROOT / "zinc_rt" / unit).is_dir()]) <= 5  # and __init__.py
