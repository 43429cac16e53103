"""Delay the answers to wrong keys, so that an address cannot try many, or occupy the event loop with them."""

from __future__ import annotations

import asyncio
import time

from zinc_rt.sched.bucket import Bucket
from zinc_rt.serve.errors import ServeError

BURST = 20  # wrong keys of an address that are answered at once
PER_SECOND = 1
MAX_DELAY_SECONDS = 2.0
MAX_DELAYED = 64  # requests that wait; further ones are refused at once
KEPT_ADDRESSES = 4096


class FailedKeys:
    """The recent failures of each address. Valid keys of the same address are not delayed: it may be a proxy."""

    def __init__(self) -> None:
        self._addresses: dict[str, Bucket] = {}  # the one that failed last comes last
        self._delayed = 0

    async def delay(self, address: str) -> None:
        """Record a failure and wait as long as the address has to. Raises ServeError 429 if too many wait."""
        now_ns = time.monotonic_ns()
        bucket = self._addresses.pop(address, None) or Bucket(PER_SECOND, BURST, now_ns)
        self._addresses[address] = bucket
        if len(self._addresses) > KEPT_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        bucket.charge(1, now_ns)
        debt = -bucket.level(now_ns)
        if debt <= 0:
            return
        if self._delayed >= MAX_DELAYED:
            message = "too many requests with a missing or unknown key"
            raise ServeError(429, message, "rate_limit_error", code="too_many_failures", retry_after_seconds=debt)
        self._delayed += 1
        try:
            await asyncio.sleep(min(debt / PER_SECOND, MAX_DELAY_SECONDS))
        finally:
            self._delayed -= 1
