"""Tier T1: AMD GPUs through /dev/kfd."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.kmd_side import KfdSide
from zinc_rt.backends.amd.open import check_availability, find_first_gpu, open_amd, open_backend
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.base import Backend
from zinc_rt.backends.spec import Availability, Host, Opening
from zinc_rt.kmd.discover import check_kfd
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.topology import TopologyNode


def probe(host: Host) -> Availability:
    return check_availability(host, "t1", check_kfd)


def open(opening: Opening) -> Backend:
    return open_amd(opening, open_t1)


def open_t1(
    driver: Driver,
    options: AmdOptions = AmdOptions(),  # noqa: B008 - frozen
    *,
    node: TopologyNode | None = None,
    after: Callable[[], None] = lambda: None,
) -> AmdBackend:
    """Open KFD on `node`, else on the first GPU with packet layouts. `after` is called when the backend was closed
    or could not be opened."""
    with ExitStack() as undo:
        undo.callback(after)
        process = KfdProcess(driver)
        undo.callback(process.close)
        gpu = process.open_gpu(node or find_first_gpu(driver))
        return open_backend(driver, gpu.node, KfdSide(gpu), "t1", options, undo)
