"""A backend as a context manager."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from zinc_rt.backends.spec import BackendSpec


class ClosedAtExit:
    """A mixin that closes itself at the end of its `with` block. If the block raised, it does not wait, and the
    block's error takes precedence."""

    spec: BackendSpec

    def close(self, *, drain_seconds: float | None = None) -> None:
        """Wait up to `drain_seconds` for running work, then release everything."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(drain_seconds=0.0)
        except Exception as failure:
            error.add_note(f"and while closing {self.spec.tier}: {failure}")
