"""Token buckets in exact integers. They delay admission and never fail a request."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(slots=True)
class Bucket:
    """A token bucket: `rate` tokens per second up to `burst`. The level may be negative, a debt that delays
    later requests.

    The level is stored in tokens × 10⁹, so that a nanosecond at any integer rate is exact.
    """

    rate: int
    burst: int
    filled_ns: int
    level_parts: int = 0

    def __post_init__(self) -> None:
        if self.rate < 1 or self.burst < 1:
            raise ValueError(
                f"a bucket needs a positive rate and burst, not a rate of {self.rate} per second and a burst of "
                f"{self.burst}"
            )
        self.level_parts = self.burst * NS

    def _compute_parts(self, now_ns: int) -> int:
        return min(self.burst * NS, self.level_parts + self.rate * max(0, now_ns - self.filled_ns))

    def _fill(self, now_ns: int) -> None:
        self.level_parts = self._compute_parts(now_ns)
        self.filled_ns = max(self.filled_ns, now_ns)

    def level(self, now_ns: int) -> float:
        """Return the tokens in the bucket. It has no side effects, so any thread may call it."""
        return self._compute_parts(now_ns) / NS

    def is_allowed(self, now_ns: int) -> bool:
        """Return whether the level permits admission."""
        self._fill(now_ns)
        return self.level_parts > 0

    def charge(self, tokens: int, now_ns: int) -> None:
        """Subtract used tokens, whatever the level."""
        self._fill(now_ns)
        self.level_parts -= tokens * NS

    def allows_from_ns(self, now_ns: int) -> int:
        """Return the earliest time from now on at which `is_allowed` is true."""
        self._fill(now_ns)
        if self.level_parts > 0:
            return self.filled_ns
        return self.filled_ns + (-self.level_parts) // self.rate + 1
