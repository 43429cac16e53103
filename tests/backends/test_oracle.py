"""What the oracle says of a function of its own that raises."""

from __future__ import annotations

import pytest
from planted import Code, PlantedBackend, PlantedFault

from zinc_rt.backends.cpu.oracle import NodeFailed
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.model.gguf import read_gguf


def test_raising_oracle_function_is_reported_with_its_node() -> None:
    def seven_column_oracle(code: Code) -> Code:
        return lambda math, x, *rest, **own: code(math, x[:, :7], *rest, **own)

    backend = PlantedBackend("canonical-1", PlantedFault("attn_norm-0", code=seven_column_oracle))
    with (
        Engine(read_gguf(list_embedded_pairs()[1].model), backend, ctx=64) as engine,
        pytest.raises(NodeFailed, match=r"node attn_norm-0 \(RMS_NORM\) raises ValueError") as caught,
    ):
        engine.extend(engine.open(), [1, 2, 3])
    assert "at kernels/reference/" in str(caught.value) and "suspect the oracle's function" in str(caught.value)
