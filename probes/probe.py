"""A probe as data: what it proves, what it needs, and how it is known to fail. Each is declared over its function:

    @probe("P20", "32-bit fence (alive)", (T1, T2), hazard=1, needs=("P18",))
    @proves("the end of the pipe writes memory", passes_when="the value comes in time")
    @fails(symptom("no-fence"), "the likely cause", "what to do about it")
    def fence32(c: ProbeContext) -> Outcome:
        return one_fence(c.queue())

The name is then the probe; `fence32.run` is the function. Of the ways to fail the first that matches counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.outcome import Outcome, Signature

Run = Callable[[Any], Outcome]  # of a ProbeContext, or of a VulkanProbeContext


@dataclass(frozen=True, slots=True)
class Probe:
    """A test of one property. `needs` are probes that must have passed, on the tiers where they exist.

    `hazard`: 0 cannot hang, 1 may hang if the chip behaves unexpectedly, 2 hangs or faults deliberately.
    """

    id: str
    title: str
    tiers: tuple[str, ...]
    hazard: int
    proves: str
    passes_when: str
    run: Run
    needs: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] = ()
    seconds: float = 20.0  # the child's deadline
    more_seconds: Callable[[ProbeOptions], float] = lambda options: 0.0  # that options ask for on top


@dataclass(frozen=True, slots=True)
class ProbeDraft:
    """A probe's function while its decorators are applied."""

    run: Run
    signatures: tuple[Signature, ...] = ()
    proves: str = ""
    passes_when: str = ""


def probe(
    id: str,
    title: str,
    tiers: tuple[str, ...],
    *,
    hazard: int,
    needs: tuple[str, ...] = (),
    seconds: float = 20.0,
    more_seconds: Callable[[ProbeOptions], float] = lambda options: 0.0,
) -> Callable[[ProbeDraft], Probe]:
    """Declare a probe. This is the outermost decorator."""

    def make_probe(draft: ProbeDraft) -> Probe:
        return Probe(
            id,
            title,
            tiers,
            hazard,
            draft.proves,
            draft.passes_when,
            draft.run,
            needs=needs,
            signatures=draft.signatures,
            seconds=seconds,
            more_seconds=more_seconds,
        )

    return make_probe


def proves(what: str, *, passes_when: str) -> Callable[[Run | ProbeDraft], ProbeDraft]:
    """Declare the property that the probe tests, and the condition for passing."""
    return lambda run: replace(_make_draft(run), proves=what, passes_when=passes_when)


def fails(matches: Callable[[Outcome], bool], cause: str, advice: str) -> Callable[[Run | ProbeDraft], ProbeDraft]:
    """Declare a known failure of this probe."""
    return fails_like(Signature(matches, cause, advice))


def fails_like(*shared: Signature) -> Callable[[Run | ProbeDraft], ProbeDraft]:
    """Add known failures shared with other probes."""

    def with_them(run: Run | ProbeDraft) -> ProbeDraft:
        draft = _make_draft(run)
        return replace(draft, signatures=shared + draft.signatures)

    return with_them


def _make_draft(run: Run | ProbeDraft) -> ProbeDraft:
    return run if isinstance(run, ProbeDraft) else ProbeDraft(run)
