"""Tier T1: AMD GPUs through /dev/kfd."""

from __future__ import annotations

from zinc_rt.backends.amd.open import availability, open_amd, open_t1
from zinc_rt.backends.base import Backend
from zinc_rt.backends.spec import Availability, Host, Opening
from zinc_rt.kmd.discover import check_kfd


def probe(host: Host) -> Availability:
    return availability(host, "t1", check_kfd)


def open(opening: Opening) -> Backend:
    return open_amd(opening, open_t1)
