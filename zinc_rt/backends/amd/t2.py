"""Tier T2: AMD GPUs through amdgpu's user queues."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.kmd_side import UserqSide
from zinc_rt.backends.amd.open import check_availability, find_first_gpu, open_amd, open_backend
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.base import Backend
from zinc_rt.backends.spec import Availability, Host, Opening
from zinc_rt.kmd.discover import check_user_queues
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.topology import TopologyNode
from zinc_rt.kmd.userq import UserqGpu


def probe(host: Host) -> Availability:
    return check_availability(host, "t2", check_user_queues)


def open(opening: Opening) -> Backend:
    return open_amd(opening, open_t2)


def open_t2(
    driver: Driver,
    options: AmdOptions = AmdOptions(),  # noqa: B008 - frozen
    *,
    node: TopologyNode | None = None,
    after: Callable[[], None] = lambda: None,
) -> AmdBackend:
    """Open user queues on `node`, else as open_t1. Raise UnsupportedError with the reason if that is
    impossible.
    """
    with ExitStack() as undo:
        undo.callback(after)
        node = node or find_first_gpu(driver)
        gpu = UserqGpu(driver, node.render_path)
        undo.callback(gpu.close)
        return open_backend(driver, node, UserqSide(gpu), "t2", options, undo)
