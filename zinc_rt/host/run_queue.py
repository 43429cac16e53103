"""The time that a thread was ready to run and had no CPU: the load of the machine, not its own work."""

from __future__ import annotations

import os


def read_waited_ns(thread: int) -> int:
    """Return the time that a thread of this process has spent in a run queue of the kernel. `thread`: its id
    (threading.get_native_id). 0 if the kernel does not report it or the thread has ended."""
    try:
        file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
    except OSError:
        return 0
    try:
        words = os.read(file, 64).split()
    except OSError:
        return 0
    finally:
        os.close(file)
    return int(words[1]) if len(words) > 1 else 0
