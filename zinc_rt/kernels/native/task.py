"""A launch whose items are distributed over host threads."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.kernels.launch import Launch

ANY = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Task(Launch):
    """A launch with a range of items. The grid's product is the number of items, x fastest. A thread claims
    `least` to `most` items at a time; for a plain Launch the number is not limited."""

    least: int = 1
    most: int = ANY
