"""A bar on stderr for what takes longer than two seconds, and only where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN_AFTER_SECONDS = 2.0


@contextmanager
def progress(total: int, label: str, unit: str = "token") -> Iterator[Callable[[int], None]]:
    """`advance(count)` while the body runs; nothing is drawn where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=label, unit=unit, delay=SHOWN_AFTER_SECONDS, leave=False, file=sys.stderr) as bar:

        def advance(count: int) -> None:
            bar.update(count)

        yield advance
