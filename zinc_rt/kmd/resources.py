"""What is held of the driver, counted, and given back in reverse order, on error paths too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zinc_rt.kmd.errors import LeakError


class Held:
    """One resource. `release` gives it back once; a second call does nothing."""

    __slots__ = ("_give_back", "_ledger", "kind", "name")

    def __init__(self, ledger: Ledger, kind: str, name: str, give_back: Callable[[], None]) -> None:
        self._ledger, self.kind, self.name, self._give_back = ledger, kind, name, give_back

    def release(self) -> None:
        """Give it back. Where that fails it stays held, so that it is counted and can be tried again."""
        if self in self._ledger.items:
            self._give_back()
            del self._ledger.items[self]


class Ledger:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.items: dict[Held, None] = {}  # in the order they were held

    def hold(self, kind: str, name: str, give_back: Callable[[], None]) -> Held:
        held = Held(self, kind, name, give_back)
        self.items[held] = None
        return held

    def counts(self) -> dict[str, int]:
        """Return the number of held resources of each kind; empty after a clean end."""
        return dict(Counter(item.kind for item in self.items))

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """What was held inside is given back if the block fails; what fails then is noted on the error."""
        before = set(self.items)
        try:
            yield
        except BaseException as error:
            for failure in self._give_back([item for item in self.items if item not in before]):
                error.add_note(f"and could not be given back: {failure}")
            raise

    @contextmanager
    def close_on_error(self) -> Iterator[None]:
        """Everything is given back if the block fails: for an owner that cannot be finished."""
        try:
            yield
        except BaseException as error:
            for failure in self._give_back(list(self.items)):
                error.add_note(f"and could not be given back: {failure}")
            raise

    def close(self) -> None:
        """Give everything back, latest first. Raises LeakError naming what would not go."""
        failures = self._give_back(list(self.items))
        if failures:
            raise LeakError(f"{self.owner}: could not give back " + "; ".join(failures))

    def _give_back(self, items: list[Held]) -> list[str]:
        failures = []
        for item in reversed(items):
            try:
                item.release()
            except Exception as error:  # the rest must still go; the caller reports all of them
                failures.append(f"{item.kind} {item.name}: {str(error).splitlines()[0]}")
        return failures
