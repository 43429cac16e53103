"""A bar on stderr for what takes longer than two seconds, and only where somebody watches."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN_AFTER_SECONDS = 2.0
REFRESH_SECONDS = 0.5


@contextmanager
def progress(total: int, label: str, unit: str = "token") -> Iterator[Callable[[int], None]]:
    """`advance(count)` while the body runs; nothing is drawn where stderr is no terminal.

    A thread draws, so that the clock goes on through one long step.
    """
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    done, finished = 0, threading.Event()
    started = time.time()

    def advance(count: int) -> None:
        nonlocal done
        done += count

    def draw() -> None:
        if finished.wait(SHOWN_AFTER_SECONDS):
            return
        from tqdm import tqdm

        with tqdm(total=total, desc=label, unit=unit, unit_scale=unit == "B", leave=False, file=sys.stderr) as bar:
            bar.start_t = started
            while True:
                bar.n = done
                bar.refresh()
                if finished.wait(REFRESH_SECONDS):
                    return

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    try:
        yield advance
    finally:
        finished.set()
        drawing.join()
