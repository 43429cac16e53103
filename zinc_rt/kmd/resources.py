"""Tracking of driver resources, which are released in reverse order, also on error paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zinc_rt.kmd.errors import LeakError


class AllocatedResource:
    """A resource. `release` releases it once; a second call does nothing."""

    __slots__ = ("_give_back", "_ledger", "kind", "name")

    def __init__(self, ledger: Ledger, kind: str, name: str, give_back: Callable[[], None]) -> None:
        self._ledger, self.kind, self.name, self._give_back = ledger, kind, name, give_back

    def release(self) -> None:
        """Release the resource. If that fails, it stays tracked and the release can be retried."""
        if self in self._ledger.items:
            self._give_back()
            del self._ledger.items[self]


class Ledger:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.items: dict[AllocatedResource, None] = {}  # in the order they were held

    def hold(self, kind: str, name: str, give_back: Callable[[], None]) -> AllocatedResource:
        held = AllocatedResource(self, kind, name, give_back)
        self.items[held] = None
        return held

    def counts(self) -> dict[str, int]:
        """Return the number of held resources of each kind; empty after a clean end."""
        return dict(Counter(item.kind for item in self.items))

    @contextmanager
    def release_on_failure(self) -> Iterator[None]:
        """Release the resources acquired in the block if the block fails; release errors are added to the error as
        notes."""
        before = set(self.items)
        try:
            yield
        except BaseException as error:
            for failure in self._give_back([item for item in self.items if item not in before]):
                error.add_note(f"and could not be given back: {failure}")
            raise

    @contextmanager
    def close_on_error(self) -> Iterator[None]:
        """Release all resources if the block fails, for an owner that cannot be constructed completely."""
        try:
            yield
        except BaseException as error:
            for failure in self._give_back(list(self.items)):
                error.add_note(f"and could not be given back: {failure}")
            raise

    def close(self) -> None:
        """Release all resources, latest first. Raise LeakError with the names of those that could not be
        released.
        """
        failures = self._give_back(list(self.items))
        if failures:
            raise LeakError(f"{self.owner}: could not give back " + "; ".join(failures))

    def _give_back(self, items: list[AllocatedResource]) -> list[str]:
        failures = []
        for item in reversed(items):
            try:
                item.release()
            except Exception as error:  # the rest must still go; the caller reports all of them
                failures.append(f"{item.kind} {item.name}: {str(error).splitlines()[0]}")
        return failures
