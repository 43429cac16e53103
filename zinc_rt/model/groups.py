"""Determine the page groups of a model file before loading it."""

from __future__ import annotations

from zinc_rt.mem.context_bytes import PageGroupSpec, count_state_row_bytes, groups_of
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model


def list_page_groups(gguf: GGUFFile) -> tuple[PageGroupSpec, ...]:
    """Return the model's page groups, the one without a window first. Raise the errors of build_model."""
    shortest = SequenceLimits(ctx=1)  # the cost of a context does not depend on its length
    return groups_of(build_model(gguf, shortest, "decode").graph)


def has_recurrent_state(gguf: GGUFFile) -> bool:
    """Return whether sequences carry a state row from token to token."""
    return count_state_row_bytes(build_model(gguf, SequenceLimits(ctx=1), "decode").graph) > 0
