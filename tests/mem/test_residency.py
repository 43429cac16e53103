"""Where weights lie: experts of whole layers go to host memory, no more of them than must, and no bit changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_ownership import open_simulated

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.settings import Settings
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.residency import LayerExperts, Residency, list_experts, place_weights
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

LAYERS = tuple(LayerExperts(layer, (f"gate[{layer}]", f"down[{layer}]"), 0.25) for layer in range(3))
SIZES = {"embed": 1000, **{name: 400 for layer in LAYERS for name in layer.weights}}
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize(
    ("room_bytes", "layers", "vram_bytes"),
    [(None, (), 3400), (3400, (), 3400), (3399, (2,), 2600), (2599, (1, 2), 1800), (1000, (0, 1, 2), 1000)],
)
def test_fewest_layers_move_to_host_memory_last_first(
    room_bytes: int | None, layers: tuple[int, ...], vram_bytes: int
) -> None:
    placed = place_weights(LAYERS, SIZES, experts="auto", room_bytes=room_bytes)
    assert (placed.layers, placed.vram_bytes, placed.host_bytes) == (layers, vram_bytes, 3400 - vram_bytes)
    assert placed.token_bytes == 200 * len(layers)
    assert placed.host == {name for layer in layers for name in LAYERS[layer].weights}


def test_residency_option_is_honoured_or_rejected_with_advice() -> None:
    everywhere = place_weights(LAYERS, SIZES, experts="gtt", room_bytes=10_000)
    assert everywhere.layers == (0, 1, 2) and everywhere.text.endswith(
        "(0 to 2), of which a token reads 0.00 MB over PCIe"
    )
    assert place_weights(LAYERS, SIZES, experts="vram", room_bytes=3400) == Residency(3400, 0, 0, frozenset(), ())
    with pytest.raises(InputError, match="the weights that must be in VRAM take") as refused:
        place_weights(LAYERS, SIZES, experts="vram", room_bytes=3399)
    assert "ZINC_RT_EXPERTS=auto" in (refused.value.next or "")
    with pytest.raises(InputError) as refused:
        place_weights(LAYERS, SIZES, experts="auto", room_bytes=999)
    assert "smaller --ctx" in (refused.value.next or "") and "ZINC_RT" not in (refused.value.next or "")


@pytest.mark.parametrize("model", ["qwen35moe-q", "gemma4moe-q"])
def test_model_experts_are_its_stacked_weights(model: str) -> None:
    graph = build_model(read_gguf(FOLDER / f"{model}.gguf"), SequenceLimits(ctx=64), "prefill").graph
    experts = list_experts(graph)
    stacked = {name for name, spec in graph.buffers.items() if spec.role == "weight" and len(spec.shape) == 3}
    assert experts and {name for expert in experts for name in expert.weights} == stacked
    assert all(0 < expert.chosen_share < 1 for expert in experts)


def logits_of(tier: str, experts: str, *, memory_bytes: int = 0) -> tuple[np.ndarray, Engine]:
    """Return a model's logits on a simulated device with that much memory, and the closed engine."""
    gguf = read_gguf(FOLDER / "qwen35moe-q.gguf")
    with open_simulated(tier) as device:
        if memory_bytes:
            device.backend.device = replace(device.backend.device, memory_bytes=memory_bytes)
        settings = Settings(experts=experts)  # type: ignore[arg-type]
        with Engine(
            gguf,
            device.backend,
            limits=SequenceLimits(ctx=64, step_tokens=16),
            options=EngineOptions(settings=settings),
        ) as engine:
            logits = engine.forward(PROMPT)
            residency = engine.variants.residency
            assert residency is not None
            weights = engine.variants.resident._weights
            on_host = {name for name, buffer in weights.items() if buffer.heap == BufferHeap.HOST_VISIBLE}
            assert on_host == residency.host
            assert device.found() == []
            return logits, engine


@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.rest
def test_experts_in_host_memory_give_the_same_bits(tier: str) -> None:
    plain, engine = logits_of(tier, "auto")
    assert engine.variants.residency is not None and not engine.variants.residency.host
    hosted, engine = logits_of(tier, "gtt")
    placed = engine.variants.residency
    assert (
        placed is not None
        and len(placed.layers) == engine.model.layers
        and placed.host_bytes > placed.token_bytes > 0
    )
    assert np.array_equal(plain.view(np.uint32), hosted.view(np.uint32))


@pytest.mark.rest
def test_experts_beyond_vram_go_to_host_memory_or_are_rejected() -> None:
    plain, engine = logits_of("t1", "auto")
    whole = sum(map(KERNELS.packed_bytes, engine.model.weights.values()))
    maximum = next(bytes_ for bytes_ in range(whole, 4 * whole, whole // 40) if simulated_memory(bytes_))
    hosted, engine = logits_of("t1", "auto", memory_bytes=maximum)
    placed = engine.variants.residency
    assert placed is not None and 0 < len(placed.layers) < engine.model.layers
    assert np.array_equal(plain.view(np.uint32), hosted.view(np.uint32))
    with pytest.raises(InputError, match="weights that must be in VRAM take"):
        logits_of("t1", "vram", memory_bytes=maximum)
    with pytest.raises(InputError, match="weights that must be in VRAM take"):
        logits_of("t1", "gtt", memory_bytes=whole // 8)


def simulated_memory(memory_bytes: int) -> bool:
    """Return whether the experts of some but not all layers fit on a device with that much memory."""
    try:
        gguf = read_gguf(FOLDER / "qwen35moe-q.gguf")
        with open_simulated("t1") as device:
            device.backend.device = replace(device.backend.device, memory_bytes=memory_bytes)
            with Engine(gguf, device.backend, limits=SequenceLimits(ctx=64, step_tokens=16)) as engine:
                assert engine.variants.resident
                placed = engine.variants.residency
                return placed is not None and 0 < len(placed.layers) < engine.model.layers
    except InputError:
        return False


def test_host_memory_tier_rejects_the_experts_setting() -> None:
    gguf = read_gguf(FOLDER / "qwen35moe-q.gguf")
    backend = CpuBackend("canonical-1", threads=1)
    engine = Engine(gguf, backend, ctx=64, options=EngineOptions(settings=Settings(experts="gtt")))
    with engine, pytest.raises(UsageError, match="tier t_cpu has no dedicated VRAM"):
        engine.forward(PROMPT)
