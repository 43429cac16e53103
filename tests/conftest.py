"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from selection import affected_tests, changed_files, import_graph, is_collected, kept_cases
from support import Counts

if TYPE_CHECKING:
    from zinc_rt.backends.vulkan.device import PhysicalDevice

# Before anything imports NumPy: the workers share the cores already, and BLAS threads beyond them only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
for name in (
    "COLUMNS",
    "LINES",
):  # readline sets them in the workers; commands would fold their tables to 80 columns
    os.environ.pop(name, None)
# No test depends on wall time: a loaded machine would miss Hypothesis's deadline of 200 ms.
hypothesis.settings.register_profile(
    "zinc-rt", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("zinc-rt")
ROOT = Path(__file__).resolve().parent.parent
# Compiled kernels and computed references, for all workers and later runs; never the user's own cache.
os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "test-cache"))
EMBEDDED = ROOT / "golden"  # the models that ship with the package


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run all tests, with the full counts (takes long)")
    for name, text in (
        ("default", "run the default tests, also below a path that is named"),
        ("rest", "run the tests that the default leaves out"),
        ("all", "run the default tests and the rest"),
    ):
        parser.addoption(f"--{name}", action="store_const", const=name, dest="test_set", help=text)
    parser.addoption(
        "--since", metavar="REV", help="run only the tests that changes since this git revision can affect"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the set of tests, in the controller; a worker uses the controller's choice.

    A path on the command line selects everything below it.
    """
    if hasattr(config, "workerinput"):
        config.option.test_set, config.args = config.workerinput["test_set"], config.workerinput["test_paths"]
        return
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    option = config.option
    if option.since:
        if named:
            raise pytest.UsageError("--since cannot be combined with paths, because it selects the test files")
        try:
            selected = affected_tests(changed_files(option.since), import_graph())
        except ValueError as error:
            raise pytest.UsageError(f"--since {option.since}: {error}") from None
        if selected == []:
            pytest.exit(f"no test is affected by the changes since {option.since}", returncode=0)
        if selected is not None:
            config.args = [str(ROOT / path) for path in selected]
    if option.test_set is None:
        option.test_set = "all" if named or option.slow else "default"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the native kernels while the workers collect."""
    config = session.config
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.collectonly
    if whole and not hasattr(config, "workerinput"):
        compiler = subprocess.Popen(
            [sys.executable, "-c", "from zinc_rt.backends.cpu.library import build_library; build_library()"],
            stderr=subprocess.DEVNULL,  # without a compiler their tests skip, with the reason
        )
        config.add_cleanup(lambda: compiler.wait())


@pytest.hookimpl(optionalhook=True)  # of xdist, which gives a worker the command line only
def pytest_configure_node(node: Any) -> None:
    node.workerinput["test_set"], node.workerinput["test_paths"] = node.config.option.test_set, node.config.args


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if is_collected(text, config.option.test_set, config.getoption("--slow")) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Disable garbage collection while tests are collected, and freeze the objects that then exist: they live
    until the end, and a collection that visits the items of all tests takes half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def has_marker(items: list[pytest.Item], name: str) -> list[bool]:
    """Return the items that a marker deselects. `rest(keep=N)` keeps N cases of each test function."""
    marked = [False] * len(items)
    cases: dict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        for marker in item.iter_markers(name):
            if "keep" not in marker.kwargs:
                marked[index] = True
        if item.get_closest_marker(name) and not marked[index]:
            cases[item.nodeid.partition("[")[0]].append(index)
    for indices in cases.values():
        markers = [marker for marker in items[indices[0]].iter_markers(name) if "keep" in marker.kwargs]
        features = [items[index].nodeid.partition("[")[2].rstrip("]").split("-") for index in indices]
        kept = kept_cases(features, markers[0].kwargs["keep"])
        for position, index in enumerate(indices):
            marked[index] = position not in kept
    return marked


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: list[pytest.Item] = []

    def select_features(name: str, keep_marked: bool) -> None:
        taken = []
        for item, is_marked in zip(items, has_marker(items, name), strict=True):
            (taken if is_marked is keep_marked else left_out).append(item)
        items[:] = taken

    if not config.getoption("--slow"):
        select_features("slow", keep_marked=False)
    if config.option.test_set != "all":
        select_features("rest", keep_marked=config.option.test_set == "rest")
    if left_out:
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def slow_counts(request: pytest.FixtureRequest) -> Counts:
    """slow_counts(default, full): how many cases this run tries."""
    full = bool(request.config.getoption("--slow"))
    return lambda default_count, full_count: full_count if full else default_count


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of outside test data (`goldens/`, `vocab/`, `gfx12/`)."""
    named = os.environ.get("ZINC_RT_TEST_DATA")
    if not named:
        pytest.skip("ZINC_RT_TEST_DATA is not set: it names the folder with the outside test data")
    if not Path(named).is_dir():
        pytest.skip(f"ZINC_RT_TEST_DATA names {named}, which is no folder")
    return Path(named)


@pytest.fixture
def vulkan_driver() -> PhysicalDevice:
    """The first Vulkan device that can run models; if there is none, skip with the reason and the packages to
    install.
    """
    from vulkan_driver import require_driver

    return require_driver()


@pytest.fixture
def qwen3() -> str:
    return str(EMBEDDED / "qwen3-q.gguf")


@pytest.fixture
def qwen35moe() -> str:
    return str(EMBEDDED / "qwen35moe-q.gguf")


@pytest.fixture
def gemma4() -> str:
    return str(EMBEDDED / "gemma4-q.gguf")
