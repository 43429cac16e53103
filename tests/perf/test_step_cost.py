"""The constants of the scheduler's simulation are what `perf predict` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.predict.devices import table
from zinc_rt.perf.predict.roofline import parts_of
from zinc_rt.perf.predict.token_work import work_of
from zinc_rt.perf.synthetic import SHAPES, write_synthetic
from zinc_rt.sched.step_cost import PREDICTED

pytestmark = pytest.mark.rest

CTX = 32_768


def test_step_costs_match_the_prediction(tmp_path: Path) -> None:
    model = read_gguf(str(write_synthetic(tmp_path / "m.gguf", SHAPES["qwen3-8b-q4_k_m"], header_only=True)))
    device, assumed = table().device("R9700"), table().case("likely")
    first, last = (work_of(model, ctx=CTX, position=at) for at in (0, CTX - 1))
    seconds = [parts_of(work, device, assumed).seconds for work in (first, last)]
    plain = work_of(
        model, ctx=CTX, position=0, plain=True
    )  # kernels that load nothing but weights and their token
    issue = sum(node.instructions for node in plain.nodes) / (device.issues_a_second * assumed["issue_share"])
    assert PREDICTED.card == device.name
    assert PREDICTED.step_us == pytest.approx(1e6 * seconds[0], rel=0.02)
    assert PREDICTED.prompt_us == PREDICTED.decode_us == pytest.approx(1e6 * issue, rel=0.02)
    assert PREDICTED.context_us == pytest.approx(1e6 * (seconds[1] - seconds[0]) / (CTX - 1), rel=0.02)
