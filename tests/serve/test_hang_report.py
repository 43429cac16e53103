"""A step that fails leaves a report, and who is to blame is told which."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import run_in_server
from embedded_server import MODEL
from faulty_runner import plant_runner

from zinc_rt import Sampling
from zinc_rt.serve.engine.hang_report import KEPT
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError


def test_device_hang_error_names_its_report(state_folder: Path) -> None:
    hangs = state_folder / "zinc-rt" / "hangs"
    hangs.mkdir(parents=True, exist_ok=True)
    for number in range(KEPT + 5):
        (hangs / f"hang-20200101T000000-{number:03}.txt").write_text("old")
    secret = (117, 118, 119)

    async def ask_until_hang(server: InferenceServer) -> str:
        faulty = await plant_runner(server, MODEL)
        faulty.fails = lambda step, records: 1 in records["request"]
        ask = EngineRequest(MODEL, secret, Sampling(max_tokens=4))
        with pytest.raises(ServeError) as caught:
            async with await server.submit(ask) as stream:
                async for _ in stream:
                    pass
        other = await server.submit(ask)
        assert [item async for item in other], "the others go on"
        return caught.value.message

    message = run_in_server(ask_until_hang)
    report = hangs / f"{message.rpartition('report ')[2]}.txt"
    text = report.read_text()
    assert "request 1.0 of tenant default" in text and "DeadlineMissed: the step did not finish" in text
    assert "tier t_cpu" in text and "2 failed steps before" in text
    assert not any(str(token) in text for token in secret)
    assert len(list(hangs.iterdir())) == KEPT
