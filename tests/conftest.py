"""Options and fixtures every room's tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import Counts

if TYPE_CHECKING:
    from zinc_rt.backends.vulkan.device import PhysicalDevice

# Before anything imports NumPy: the workers share the cores already, and BLAS threads beyond them only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
EMBEDDED = Path(__file__).resolve().parent.parent / "golden"  # the models that ship with the package


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the full counts (minutes, not seconds)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="full counts only: run with --slow"))


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
    """The first Vulkan device that can run models; a skip with the reason and what to install where none can."""
    from vulkan_driver import required

    return required()


@pytest.fixture
def qwen3() -> str:
    return str(EMBEDDED / "qwen3-q.gguf")


@pytest.fixture
def qwen35moe() -> str:
    return str(EMBEDDED / "qwen35moe-q.gguf")


@pytest.fixture
def gemma4() -> str:
    return str(EMBEDDED / "gemma4-q.gguf")
