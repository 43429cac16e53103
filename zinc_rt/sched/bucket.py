"""Token buckets in exact integers: rates shape what is admitted, they do not fail it."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(slots=True)
class Bucket:
    """`rate` tokens a second up to `burst`; the level may go below zero, a debt that delays what comes next.

    Kept in tokens × 10⁹, so that a nanosecond at any whole rate counts and nothing is ever rounded.
    """

    rate: int
    burst: int
    filled_ns: int
    level_parts: int = 0

    def __post_init__(self) -> None:
        if self.rate < 1 or self.burst < 1:
            raise ValueError(f"a bucket fills and holds something, not {self.rate} a second up to {self.burst}")
        self.level_parts = self.burst * NS

    def _parts(self, now_ns: int) -> int:
        return min(self.burst * NS, self.level_parts + self.rate * max(0, now_ns - self.filled_ns))

    def _fill(self, now_ns: int) -> None:
        self.level_parts = self._parts(now_ns)
        self.filled_ns = max(self.filled_ns, now_ns)

    def level(self, now_ns: int) -> float:
        """Tokens in it. Changes nothing, so any thread may look."""
        return self._parts(now_ns) / NS

    def allows(self, now_ns: int) -> bool:
        """Whether anything may be admitted."""
        self._fill(now_ns)
        return self.level_parts > 0

    def charge(self, tokens: int, now_ns: int) -> None:
        """So many tokens were used, whatever the level."""
        self._fill(now_ns)
        self.level_parts -= tokens * NS

    def allows_from_ns(self, now_ns: int) -> int:
        """The first instant from now on at which `allows` is true."""
        self._fill(now_ns)
        if self.level_parts > 0:
            return self.filled_ns
        return self.filled_ns + (-self.level_parts) // self.rate + 1
