"""The state of a bisection, computed from its journal: the search, the confirmation of suspects, the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zinc_rt.doctor.bringup.bisect_env import confirm
from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession, JournalRun, PlanRow
from zinc_rt.doctor.bringup.bisect_env.model import SUSPECTED, Cause, CauseModel, build_model, expected_information
from zinc_rt.host.errors import InputError

SHOWN_CAUSES = 5


@dataclass(slots=True)
class Confirmation:
    """The runs that confirm or refute a suspect (an index in the model's causes). `boots` contains, per arm, the
    runs and the failed runs of each boot.
    """

    suspect: int
    plan: confirm.ConfirmationPlan
    boots: list[dict[str, list[int]]]
    judgement: confirm.Judgement | None = None

    @property
    def spent(self) -> list[int]:
        return [len(boot) for boot in self.boots]

    def add(self, run: JournalRun) -> bool:
        """Add a run. Return False if its values do not match any arm."""
        places = [index for index, arm in enumerate(self.plan.arms) if arm.run == run.run]
        for index in places:
            counts = self.boots[index].setdefault(run.boot, [0, 0])
            counts[0] += 1
            counts[1] += run.outcome == "fail"
        return bool(places)

    def likelihood(self) -> np.ndarray:
        """Return the log likelihood [1, arms, chances]."""
        result = np.zeros((1, len(self.boots), len(confirm.CHANCES)))
        for index, boots in enumerate(self.boots):
            for runs, failed in boots.values():
                result[0, index] += confirm.compute_boot_likelihood(failed, runs)
        return result


@dataclass(slots=True)
class SessionState:
    """A session, and the results of its runs. `posterior` [1, rates, hypotheses]. `verdict` is empty while
    more runs are needed, otherwise guilty, not-found (no variable of the list) or not-explained. `bits`: the
    information expected of the search's runs since the last suspect."""

    session: BisectSession
    model: CauseModel
    posterior: np.ndarray
    confirmation: Confirmation | None = None
    refuted: list[Confirmation] = field(default_factory=list)
    verdict: str = ""
    bits: float = 0.0

    @property
    def beliefs(self) -> np.ndarray:
        """Return the probabilities of the causes [causes] according to the search."""
        belief: np.ndarray = self.model.cause_probabilities(self.posterior)[0]
        return belief

    @property
    def best_cause(self) -> Cause:
        index = self.confirmation.suspect if self.confirmation else int(self.beliefs.argmax())
        return self.model.causes[index]

    @property
    def confidence(self) -> float:
        """The probability of the best cause, from the confirmation once it has begun, else from the search."""
        if self.confirmation and self.confirmation.judgement:
            return float(self.confirmation.judgement.cause[0])
        return float(self.beliefs.max())

    @property
    def ended(self) -> bool:
        return bool(self.verdict)

    def likeliest_causes(self) -> list[tuple[Cause, float]]:
        order = np.argsort(-self.beliefs, kind="stable")[:SHOWN_CAUSES]
        return [(self.model.causes[int(at)], float(self.beliefs[at])) for at in order]

    def find_current_arm(self) -> confirm.Arm | None:
        """Return the arm whose turn it is, if a suspect is being confirmed and its plan has boots left."""
        if self.confirmation is None or self.ended:
            return None
        index = self.confirmation.plan.find_next_arm(self.confirmation.spent)
        return None if index is None else self.confirmation.plan.arms[index]

    def find_next_plan(self) -> tuple[Cause, confirm.ConfirmationPlan] | None:
        """Return the plan to state before the next run: a plan for a new suspect, or the extension of a used
        one.
        """
        if self.ended or self.find_current_arm() is not None:
            return None
        if self.confirmation is not None:
            return self.best_cause, confirm.extend(self.confirmation.plan)
        index = int(self.beliefs.argmax())
        settled = self.beliefs[index] >= SUSPECTED or self.bits >= self.model.search_bits
        if not settled or not self.model.causes[index].variables:
            return None
        problem, confidence = self.session.problem, self.session.confidence
        return self.model.causes[index], confirm.plan_confirmation(
            problem, self.model, self.posterior[0], index, confidence
        )


def compute_state(session: BisectSession) -> SessionState:
    """Compute the state from all records. Raises InputError for a plan whose suspect does not exist."""
    model = build_model(session.problem)
    state = SessionState(session, model, model.start())
    plans = iter(session.plans)
    row = next(plans, None)
    boots: dict[str, list[tuple[np.ndarray, bool]]] = {}
    for number, run in enumerate([*session.runs, None]):
        while row is not None and row.after == number:
            _begin_confirmation(state, row)
            row = next(plans, None)
        if run is None or state.ended or run.outcome not in ("pass", "fail"):
            continue
        present = model.find_present_causes(np.array([run.run])).T
        failed = run.outcome == "fail"
        earlier = boots.setdefault(run.boot, [])
        chances = compute_boot_chances(model, earlier)
        if state.confirmation is None:
            column = present.T.astype(np.float32)
            state.bits += float(expected_information(model, state.posterior, column, chances)[0, 0])
        state.posterior = model.after(state.posterior, present, np.array([failed]), chances)
        earlier.append((present[0], failed))
        _judge_confirmation(state, run)
    return state


def compute_boot_chances(
    model: CauseModel, earlier: list[tuple[np.ndarray, bool]]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the chances that the next run of a boot with these runs fails, or None for a new boot."""
    if not earlier:
        return None
    return model.boot_failure_probability(
        np.array([item for item, _ in earlier]), np.array([failed for _, failed in earlier])
    )


def _begin_confirmation(state: SessionState, row: PlanRow) -> None:
    suspect = next((index for index, cause in enumerate(state.model.causes) if cause.text == row.suspect), None)
    if suspect is None:
        raise InputError(
            f"{state.session.source}: the journal confirms {row.suspect!r}, which is not one of these variables",
            next="the journal may have been edited by hand: zinc-rt bisect-env start --again VARIABLES.yaml",
        )
    arms = confirm.build_arms_of_cause(state.session.problem, state.model, state.posterior[0], suspect)
    if state.confirmation is not None and state.confirmation.suspect == suspect:
        state.confirmation.plan = confirm.ConfirmationPlan(arms, row.boots)
        return
    state.bits = 0.0
    state.confirmation = Confirmation(suspect, confirm.ConfirmationPlan(arms, row.boots), [{} for _ in arms])


def _judge_confirmation(state: SessionState, run: JournalRun) -> None:
    result, confidence = state.confirmation, state.session.confidence
    if result is not None and result.add(run):
        result.judgement = confirm.judge(result.likelihood(), state.session.problem.rates)
        chance = float(result.judgement.cause[0])
        if chance >= confidence:
            state.verdict = "guilty"
        elif chance <= confirm.REFUTED:
            state.refuted.append(result)
            state.confirmation = None
            state.posterior = state.model.refute_cause(state.posterior, result.suspect)
            outside = confirm.is_outside_suspects(
                result.judgement.present[0], confirm.strict_probability(confidence)
            )
            if outside or len(state.refuted) >= confirm.MOST_SUSPECTS:
                state.verdict = "not-explained"
    if state.confirmation is None and not state.ended:
        index = int(state.beliefs.argmax())
        if (
            state.beliefs[index] >= confirm.strict_probability(confidence)
            and not state.model.causes[index].variables
        ):
            state.verdict = "not-explained" if state.refuted else "not-found"
