"""Select tests: the default set, the rest of it, and the tests that a change can affect."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from zinc_rt.host.packages import HARNESS

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = ("tests/ci", "tests/cli", "tests/compiled_corpus", "tests/examples", "tests/faults")
"""Test folders that start commands or copy the tree; any changed package can affect them."""
WHOLE_MODULE = re.compile(r"^pytestmark = pytest\.mark\.(rest|slow)$", re.MULTILINE)

Imports = Mapping[str, set[str]]  # file -> files that it imports, as paths below the root


def is_collected(text: str, chosen: str, slow: bool = False) -> bool:
    """Return whether a test file with this source can have tests of the set `chosen`: default, rest or all.

    Searching the source avoids importing files whose tests would all be deselected.
    """
    whole = {match[1] for match in WHOLE_MODULE.finditer(text)}
    if "slow" in whole and not slow:
        return False
    if chosen == "default":
        return "rest" not in whole
    return chosen == "all" or "mark.rest" in text


def kept_cases(features: Sequence[Sequence[str]], keep: int) -> set[int]:
    """Return the indices of the `keep` cases that stay in the default set.

    Repeatedly select the case with the most feature values that no selected case has. Ties go to the case that is
    farthest from the chosen ones, then to the first. The result depends on the arguments only.
    """
    count = len(features)
    if keep >= count:
        return set(range(count))
    values = [set(enumerate(feature)) for feature in features]
    seen: set[tuple[int, str]] = set()
    chosen: list[int] = []
    distance = [count] * count  # to the nearest chosen case
    while len(chosen) < keep:
        best = max(
            (index for index in range(count) if distance[index]),
            key=lambda index: (len(values[index] - seen), distance[index], -index),
        )
        chosen.append(best)
        seen |= values[best]
        distance = [min(old, abs(index - best)) for index, old in enumerate(distance)]
    return set(chosen)


def changed_files(revision: str) -> list[str]:
    """Return the paths that differ from `revision`: committed, uncommitted and untracked.

    Raises ValueError with git's message.
    """
    paths: set[str] = set()
    for command in (
        ["git", "diff", "--name-only", "--no-renames", revision, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    ):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ValueError(result.stderr.strip())
        paths.update(result.stdout.splitlines())
    return sorted(paths)


def import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the import graph of the packages and the tests, and the edges from `zinc-rt` to its commands."""
    files = sorted(
        path
        for top in ("zinc_rt", *HARNESS, "tests")
        for path in (root / top).rglob("*.py")
        if "__pycache__" not in path.parts
        and not any((root / "zinc_rt" / name) in path.parents for name in HARNESS)
    )
    paths = {path.relative_to(root).as_posix() for path in files}
    helpers = {PurePosixPath(path).stem: path for path in sorted(paths) if path.startswith("tests/")}
    graph = {
        path: {file for name in _imported(root / path) for file in _files_of_module(name, path, paths, helpers)}
        for path in sorted(paths)
    }
    scripts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    commands = {
        module_file for entry in scripts.values() for module_file in _module_files(entry.partition(":")[0], paths)
    }
    graph.setdefault("zinc_rt/cli/main.py", set()).update(commands)
    return graph


def _imported(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_files(name: str, paths: set[str]) -> Iterable[str]:
    """Yield the files that the import of a `zinc_rt` module or of a name in one runs."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        inner = parts[:end]
        stem = "/".join(inner[1:] if len(inner) > 1 and inner[1] in HARNESS else inner)
        yield from (path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in paths)


def _files_of_module(name: str, importer: str, paths: set[str], helpers: Mapping[str, str]) -> Iterable[str]:
    """Test helpers are imported by their bare name, first from the importer's folder."""
    head = name.partition(".")[0]
    if head == "zinc_rt":
        yield from _module_files(name, paths)
    elif importer.startswith("tests/"):
        near = f"{PurePosixPath(importer).parent}/{head}.py"
        yield from [near] if near in paths else [helpers[head]] if head in helpers else []


def unit(path: str) -> str:
    """Return the package of a file below the root, empty for a file outside the packages."""
    parts = PurePosixPath(path).parts
    if parts[0] in HARNESS:
        return parts[0]
    return PurePosixPath(parts[1]).stem if parts[0] == "zinc_rt" and len(parts) > 1 else ""


def is_test_file(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


def affected_tests(changed: Iterable[str], imports: Imports) -> list[str] | None:
    """Return the test files that a change of these files can affect, or None for all of them.

    A change affects the files that import it, directly or indirectly. A test file is selected if the change
    affects it or the package that its folder mirrors. A file outside the packages and test folders selects all
    tests.
    """
    changed = set(changed)
    reached: set[str] = set()
    folders: set[str] = set()
    for path in changed:
        inside = unit(path)
        if path in imports:
            reached.add(path)
        elif inside:  # package data, or a deleted file
            reached.update(other for other in imports if unit(other) == inside)
        elif not is_test_file(path):  # a deleted test file selects nothing
            return None
        if path == "tests/conftest.py" or path == "zinc_rt/__init__.py":
            return None
        if path.startswith("tests/") and path.endswith("/conftest.py"):
            folders.add(str(PurePosixPath(path).parent))
    importers: dict[str, set[str]] = {}
    for path, targets in imports.items():
        for target in targets:
            importers.setdefault(target, set()).add(path)
    waiting = list(reached)
    while waiting:
        for path in importers.get(waiting.pop(), set()) - reached:
            reached.add(path)
            waiting.append(path)
            if path.endswith("/conftest.py"):
                folders.add(str(PurePosixPath(path).parent))
    units = {inside for path in reached if (inside := unit(path))}
    if units:
        folders.update({*ALWAYS, *(f"tests/{name}" for name in units)})
    return [
        path
        for path in sorted(imports)
        if is_test_file(path)
        and (
            path in reached
            or (units and path.count("/") == 1)
            or any(str(parent) in folders for parent in PurePosixPath(path).parents)
        )
    ]
