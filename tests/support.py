"""Types the rooms' tests share; on the path through pytest's `pythonpath`."""

from collections.abc import Callable

# slow_counts(default, full): how many cases this run tries
Counts = Callable[[int, int], int]
