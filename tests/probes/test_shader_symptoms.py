"""What shader probes conclude from wrong results: each way to be wrong has its own signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from zinc_rt.probes.explanation import explain_outcome
from zinc_rt.probes.groups import coherence, cu_mask, dispatch, parity, shader_memory
from zinc_rt.probes.groups.dispatch import GRID, GROUP, START, Ids, classify_start, expect_ids, list_ids
from zinc_rt.probes.outcome import ProbeFailed
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.registry import PROBES, find_module_probes
from zinc_rt.sim.chips import CHIPS

BY_ID = {probe.id: probe for probe in PROBES}
RIGHT: Ids = Counter((group, item) for group in list_ids(GRID) for item in list_ids(GROUP))


def change_ids(change: Callable[[tuple[int, int, int], tuple[int, int, int]], object]) -> Ids:
    ids: Ids = Counter()
    for group, item in RIGHT:
        ids[change(group, item)] += 1  # type: ignore[index]
    return ids


@pytest.mark.parametrize(
    ("ids", "symptom", "cause"),
    [
        (change_ids(lambda group, item: ((0, 0, 0), item)), "ids-zero", "ttmp9 and ttmp7"),
        (change_ids(lambda group, item: ((group[0], group[2], group[1]), item)), "ids-swapped", "ttmp7[15:0]"),
        (change_ids(lambda group, item: (group, (item[0], 0, 0))), "wrong-items", "packed"),
        (change_ids(lambda group, item: ((group[0] + 9, *group[1:]), item)), "wrong-ids", "grid"),
        (RIGHT + Counter({((0, 0, 0), (0, 0, 0)): 1}), "wrong-count", "grid"),
        (Counter(), "wrong-count", "grid"),
    ],
)
def test_wrong_ids_are_distinguished(ids: Ids, symptom: str, cause: str) -> None:
    with pytest.raises(ProbeFailed) as failed:
        expect_ids(ids, list_ids(GRID), list_ids(GROUP))
    assert failed.value.outcome.symptom == symptom
    assert cause in explain_outcome(BY_ID["P34"], failed.value.outcome).cause


def test_correct_ids_pass() -> None:
    expect_ids(RIGHT, list_ids(GRID), list_ids(GROUP))


def test_dims_with_start_are_recognised_as_end_or_count() -> None:
    assert classify_start(set(list_ids((3, 2, 1), START))) == "end"
    assert classify_start(set(list_ids((5, 3, 2), START))) == "count"
    with pytest.raises(ProbeFailed, match="START says"):
        classify_start(set(list_ids((3, 2, 1))))


SHADER_PROBES = [
    probe
    for module in (dispatch, shader_memory, coherence, cu_mask, parity)
    for probe in find_module_probes(module)
]


@pytest.mark.parametrize("probe", SHADER_PROBES, ids=lambda probe: probe.id)
def test_signatures_of_a_probe_have_distinct_causes(probe: Probe) -> None:
    assert len({signature.cause for signature in probe.signatures}) == len(probe.signatures) > 3
    assert probe.hazard == 1 and probe.needs


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.key)
def test_chip_has_a_unique_id_for_every_pair_of_compute_units(chip: object) -> None:
    places = chip.processors  # type: ignore[attr-defined]
    assert len(places) == len(set(places)) == chip.cus // 2  # type: ignore[attr-defined]
    second = 1 << 18 if chip.shader_engines > 1 else 1 << 16  # type: ignore[attr-defined]
    assert places[0] == 0 and places[1] == second, "engines first, then arrays"
