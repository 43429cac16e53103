"""Tier T2: AMD GPUs through amdgpu's user queues."""

from __future__ import annotations

from zinc_rt.backends.amd.open import availability, open_amd, open_t2
from zinc_rt.backends.base import Backend
from zinc_rt.backends.spec import Availability, Host, Opening
from zinc_rt.kmd.discover import check_user_queues


def probe(host: Host) -> Availability:
    return availability(host, "t2", check_user_queues)


def open(opening: Opening) -> Backend:
    return open_amd(opening, open_t2)
