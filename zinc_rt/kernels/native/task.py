"""A launch whose items are distributed over host threads."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.kernels.launch import Launch

ANY = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Task(Launch):
    """The grid's product is a number of items, x fastest; a thread claims at least `least` and at most `most` of
    them at a time. A plain Launch is one whose items may be claimed in any number."""

    least: int = 1
    most: int = ANY
