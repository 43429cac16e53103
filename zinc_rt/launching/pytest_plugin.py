"""The pytest plugin: the fixture `gpu` launches kernels on a simulated GPU and fails a test for its findings.

Loaded by every pytest run where zinc_rt is installed, so it imports nothing heavy until the fixture is used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.launching.gpu_fixture import GpuFixture, GpuSession

_SESSION: pytest.StashKey[GpuSession] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu", "kernels on a simulated GPU (zinc-rt)")
    group.addoption(
        "--gpu-chip",
        default=DEFAULT_ARCH,
        metavar="NAME",
        help=f"chip of the fixture gpu (default {DEFAULT_ARCH})",
    )
    group.addoption(
        "--gpu-tool",
        metavar="NAME[,NAME]",
        help="tools of the fixture gpu, like memcheck,racecheck (default: all)",
    )
    parser.addini(
        "gpu_suppressions",
        "files of accepted findings (zinc-rt docs, launch), relative to the ini file",
        type="paths",
    )


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Iterator[GpuFixture]:
    """A simulated GPU: gpu.launch(...) runs a kernel, gpu.triton() makes the GPU Triton's driver, gpu.against(...)
    compares a kernel with a reference. The test fails if there are findings that it did not retrieve.
    """
    from zinc_rt.launching.gpu_fixture import GpuFixture

    session = _open_session(request.config)
    fixture = GpuFixture(session)
    try:
        yield fixture
    finally:
        session.deactivate()
        for line in fixture.report():
            request.node.user_properties.append(("gpu-finding", line))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    outcome = yield
    fixture = getattr(pyfuncitem, "funcargs", {}).get("gpu")
    if fixture is not None and type(fixture).__name__ == "GpuFixture":
        fixture.check()
    return outcome


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()


def _open_session(config: pytest.Config) -> GpuSession:
    """Return the GPU of this process, the same for all tests."""
    session = config.stash.get(_SESSION, None)
    if session is None:
        from zinc_rt.host.errors import ZincError
        from zinc_rt.launching.gpu_fixture import GpuSession

        tools = config.getoption("--gpu-tool")
        try:
            session = GpuSession(
                config.getoption("--gpu-chip"),
                tuple(tools.split(",")) if tools else None,
                [str(path) for path in config.getini("gpu_suppressions")],
                _find_table(config.rootpath / "pyproject.toml"),
            )
        except ZincError as error:
            raise pytest.UsageError(str(error)) from None
        config.stash[_SESSION] = session
    return session


def _find_table(path: Path) -> tuple[str, list[Any]]:
    """Return the name of pyproject.toml and its entries [[tool.zinc-rt.suppressions]]."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return str(path), []
    return str(path), content.get("tool", {}).get("zinc-rt", {}).get("suppressions", [])
