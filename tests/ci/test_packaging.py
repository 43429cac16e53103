"""The sdist and the wheel hold everything once, and install without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from zinc_rt.host.packages import HARNESS

pytestmark = pytest.mark.rest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BASE = getattr(sys, "_base_executable", sys.executable)  # .venv holds no pip
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}


def run_pip(*words: str) -> None:
    environment = {**os.environ, **OFFLINE}
    command = [BASE, "-m", "pip", "--python", sys.executable, *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def built_distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a copy of this checkout (symbolic links are kept), and the wheel that pip builds from it."""
    folder = tmp_path_factory.mktemp("build")
    checkout = folder / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip(f"no git checkout to build from: {listed.stderr.strip()}")
    for name in filter(None, listed.stdout.split("\0")):
        if name.startswith("tests/") or not os.path.lexists(ROOT / name):
            continue
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    make = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    result = subprocess.run(
        [sys.executable, "-c", make, str(folder)], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    sdist = folder / result.stdout.splitlines()[-1]
    run_pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(folder), str(sdist))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def expected_files() -> set[str]:
    """The files that pyproject lists, at their paths in the installed package."""
    tool = PROJECT["tool"]["setuptools"]
    result = set()
    for package in tool["packages"]:
        folder = ROOT / tool["package-dir"].get(package, package.replace(".", "/"))
        patterns = ["*.py", *tool["package-data"].get(package, [])]
        paths = {path for pattern in patterns for path in folder.glob(pattern)}
        result |= {str(PurePosixPath(package.replace(".", "/")) / path.relative_to(folder)) for path in paths}
    return result


def test_wheel_contains_every_file_once(built_distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built_distributions[1]) as wheel:
        held = Counter(name for name in wheel.namelist() if ".dist-info/" not in name)
    assert set(held) == expected_files() and max(held.values()) == 1
    assert not [name for name in held if name.split("/")[0] != "zinc_rt"], "nothing beside the package"
    for name in HARNESS:
        if (ROOT / name).is_dir():
            assert any(item.startswith(f"zinc_rt/{name}/") for item in held), name


def test_sdist_contains_every_harness_folder_once_and_no_links(built_distributions: tuple[Path, Path]) -> None:
    with tarfile.open(built_distributions[0]) as sdist:
        members = sdist.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = Counter(PurePosixPath(member.name).parts[1:] for member in members if member.isfile())
    assert max(names.values()) == 1
    for name in HARNESS:
        if (ROOT / name).is_dir():
            assert any(parts[0] == name for parts in names), name
            assert not any(parts[:2] == ("zinc_rt", name) for parts in names), f"{name} is there twice"
    assert {("LICENSE",), ("README.md",), ("pyproject.toml",)} <= set(names)


def test_wheel_installs_standalone_and_its_commands_start(
    built_distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    """Into a folder of its own, run where no checkout is; the packages it requires are this environment's."""
    target = tmp_path / "site"
    run_pip("install", "--no-deps", "--no-index", "--quiet", "--target", str(target), str(built_distributions[1]))
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "import zinc_rt, zinc_rt.golden.embedded as golden, zinc_rt.replay.standalone, zinc_rt.probes.command\n"
        "from zinc_rt.kernels.sets import find_kernel_set\n"
        "models = sorted(path.name for path in golden.FOLDER.glob('*.gguf'))\n"
        "print(json.dumps([zinc_rt.__file__, models, len(find_kernel_set('gfx1201').entries)]))\n"
    )
    command = [sys.executable, "-I", "-c", program, str(target)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    where, models, kernels = json.loads(result.stdout)
    assert Path(where).is_relative_to(target) and len(models) == 5 and kernels > 10
    for script in PROJECT["project"]["scripts"]:
        assert (target / "bin" / script).exists(), script
    help_of = [sys.executable, str(target / "bin" / "zinc-rt"), "sim", "--list"]
    result = subprocess.run(
        help_of,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        check=False,
    )
    assert result.returncode == 0 and "r9700" in result.stdout, result.stderr


def test_version_is_the_same_everywhere(built_distributions: tuple[Path, Path]) -> None:
    import zinc_rt

    version = PROJECT["project"]["version"]
    assert (
        zinc_rt.__version__ == version
        and f"-{version}" in built_distributions[0].name
        and f"-{version}-" in built_distributions[1].name
    )
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {version}" in changes, "a released version has its heading"
