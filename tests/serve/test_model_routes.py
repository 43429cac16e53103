"""Models come and go by their endpoints, those of the configuration alone."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.serve.config.settings import ModelSettings

OTHER = "gemma4-q"


@pytest.fixture(scope="module")
def two_model_server() -> Iterator[RunningServer]:
    models = (
        ModelSettings(MODEL, MODEL, ctx=64, slots=2),
        ModelSettings(OTHER, OTHER, ctx=64, slots=2, loaded=False, pinned=False),
        ModelSettings("gone", "no-such-file.gguf", loaded=False),
    )
    yield from run_server(make_config(models=models))


@pytest.fixture
def openai_client(two_model_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{two_model_server.url}/v1", api_key="none", max_retries=0) as result:
        yield result


def test_non_resident_models_report_whether_they_fit(openai_client: openai.OpenAI) -> None:
    about = {model.id: model.model_extra["zinc_rt"] for model in openai_client.models.list()}  # type: ignore[index]
    assert about[MODEL]["loaded"] and about[MODEL]["tier"] == "t_cpu"
    assert not about[OTHER]["loaded"] and about[OTHER]["fits"] and about[OTHER]["bytes"] > 0
    assert not about["gone"]["fits"] and "no-such-file" in about["gone"]["unusable"]


def test_resident_model_reports_its_memory(openai_client: openai.OpenAI) -> None:
    memory = openai_client.models.retrieve(MODEL).model_extra["zinc_rt"]["memory"]  # type: ignore[index]
    gguf = read_gguf(FOLDER / f"{MODEL}.gguf")
    heads, width, layers = (
        int(gguf.metadata[f"qwen3.{name}"])  # type: ignore[call-overload]
        for name in ("attention.head_count_kv", "attention.key_length", "block_count")
    )
    tokens, f32 = 2 * 64, 4  # slots times context
    pages = 2 * layers * heads * width * f32 * tokens  # keys and values
    assert 0 <= memory["kv_bytes"] - pages <= 512  # and a page table of 2 times 4 entries, aligned
    weights = sum(tensor.nbytes for tensor in gguf.tensors.values())
    assert weights <= memory["weights_bytes"] < 1.2 * weights  # and tables of RoPE
    assert memory["activations_bytes"] > 0 and memory["steps_bytes"] > 0 and memory["host_weights_bytes"] == 0
    parts = ("weights", "kv", "state", "activations", "steps")
    assert memory["total_bytes"] == sum(memory[f"{part}_bytes"] for part in parts)


def test_model_is_loaded_used_and_deleted(openai_client: openai.OpenAI) -> None:
    ask = {"model": OTHER, "prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0}
    with pytest.raises(openai.NotFoundError, match=OTHER):
        openai_client.completions.create(**ask)  # type: ignore[call-overload]
    result = openai_client.post("/models/load", body={"model": OTHER}, cast_to=dict)
    assert result["id"] == OTHER and result["zinc_rt"]["loaded"]
    first = openai_client.completions.create(**ask)  # type: ignore[call-overload]
    assert first.model == OTHER and first.usage.completion_tokens == 4
    assert openai_client.models.delete(OTHER).deleted
    assert not openai_client.models.retrieve(OTHER).model_extra["zinc_rt"]["loaded"]  # type: ignore[index]
    with pytest.raises(openai.NotFoundError):
        openai_client.models.delete(OTHER)
    openai_client.post("/models/load", body={"model": OTHER}, cast_to=dict)
    assert openai_client.completions.create(**ask).choices[0].text == first.choices[0].text  # type: ignore[call-overload]


def test_only_configured_models_can_be_loaded(openai_client: openai.OpenAI) -> None:
    for name in ("../../etc/passwd", "qwen35moe-q"):
        with pytest.raises(openai.NotFoundError, match="no model "):
            openai_client.post("/models/load", body={"model": name}, cast_to=dict)
    with pytest.raises(openai.ConflictError, match="no-such-file"):
        openai_client.post("/models/load", body={"model": "gone"}, cast_to=dict)


def test_chat_without_template_error_gives_advice(openai_client: openai.OpenAI) -> None:
    openai_client.post("/models/load", body={"model": OTHER}, cast_to=dict)
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        openai_client.chat.completions.create(model=OTHER, messages=[{"role": "user", "content": "hello"}])
