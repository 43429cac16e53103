"""The architectures of tiny models: one row each, whose function returns metadata and tensors.

Names and shapes follow llama.cpp's loaders (src/models/*.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.golden.tiny_models.bert import bert, bertrank, nomicbert
from zinc_rt.golden.tiny_models.deepseek import deepseek2, deepseek2lite
from zinc_rt.golden.tiny_models.gemma import gemma, gemma2, gemma3, gemma4, gemma4moe
from zinc_rt.golden.tiny_models.llama import (
    ernie4_5,
    exaone,
    glm4,
    gptoss,
    granite,
    granitemoe,
    llama,
    mistral,
    mistral3,
    mixtral,
    olmo2,
    olmoe,
    phi2,
    phi3,
    phi3long,
    seed_oss,
    smollm3,
)
from zinc_rt.golden.tiny_models.mamba import jamba, mamba
from zinc_rt.golden.tiny_models.parts import Metadata, Sizes
from zinc_rt.golden.tiny_models.qwen import (
    qwen2,
    qwen2moe,
    qwen3,
    qwen3moe,
    qwen3next,
    qwen3rank,
    qwen35,
    qwen35moe,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


@dataclass(frozen=True, slots=True)
class TinyArchitecture:
    architecture: str  # general.architecture
    vocabulary: str  # a row of vocabulary.VOCABULARIES
    build: Callable[[Sizes, RandomWeights], Metadata]
    layers: int  # unless asked otherwise: enough to meet every kind of layer
    head_factor: int = 1  # head width as a multiple of hidden / heads
    epsilon: float = 1e-6
    fewest_layers: int = 1
    fixed_head_dim: bool = False  # llama.cpp takes hidden / heads, whatever key_length says
    embeds: bool = False  # it has hidden states or scores, and no logits
    causal: bool = True  # if not, every token sees its whole sequence


ARCHITECTURES = {
    "llama": TinyArchitecture("llama", "llama-bpe", llama, 3, epsilon=1e-5),
    "mistral": TinyArchitecture("llama", "llama", mistral, 2, head_factor=2, epsilon=1e-5),
    "mixtral": TinyArchitecture("llama", "llama", mixtral, 2, epsilon=1e-5),
    "mistral3": TinyArchitecture("mistral3", "tekken", mistral3, 3, epsilon=1e-5),
    "qwen2": TinyArchitecture("qwen2", "qwen2", qwen2, 3, fixed_head_dim=True),
    "qwen3": TinyArchitecture("qwen3", "qwen2", qwen3, 3, head_factor=2),
    "qwen3moe": TinyArchitecture("qwen3moe", "qwen2", qwen3moe, 2, head_factor=2),
    "qwen3next": TinyArchitecture("qwen3next", "qwen2", qwen3next, 4, head_factor=2, fewest_layers=4),
    "qwen35": TinyArchitecture("qwen35", "qwen35", qwen35, 4, head_factor=2, fewest_layers=4),
    "qwen35moe": TinyArchitecture("qwen35moe", "qwen35", qwen35moe, 4, head_factor=2, fewest_layers=4),
    "gemma2": TinyArchitecture("gemma2", "gemma", gemma2, 4, head_factor=2, fewest_layers=2),
    "gemma3": TinyArchitecture("gemma3", "gemma", gemma3, 7, head_factor=2),
    "gemma4": TinyArchitecture("gemma4", "gemma4", gemma4, 6, head_factor=2, fewest_layers=2),
    "gemma4moe": TinyArchitecture("gemma4", "gemma4", gemma4moe, 3, head_factor=2, fewest_layers=2),
    "phi2": TinyArchitecture("phi2", "gpt-2", phi2, 3, epsilon=1e-5, fixed_head_dim=True),
    "phi3": TinyArchitecture("phi3", "llama", phi3, 3, epsilon=1e-5, fixed_head_dim=True),
    "phi3long": TinyArchitecture("phi3", "llama", phi3long, 3, epsilon=1e-5, fixed_head_dim=True),
    "deepseek2": TinyArchitecture("deepseek2", "deepseek-v3", deepseek2, 3),
    "deepseek2lite": TinyArchitecture("deepseek2", "deepseek-v3", deepseek2lite, 3),
    "mamba": TinyArchitecture("mamba", "gpt-2", mamba, 3, epsilon=1e-5),
    "jamba": TinyArchitecture("jamba", "gpt-2", jamba, 4, fewest_layers=2, fixed_head_dim=True),
    "granite": TinyArchitecture("granite", "gpt-2", granite, 3, epsilon=1e-5, fixed_head_dim=True),
    "gptoss": TinyArchitecture("gpt-oss", "gpt-4o", gptoss, 4, head_factor=2, epsilon=1e-5),
    "olmo2": TinyArchitecture("olmo2", "gpt-2", olmo2, 4, fixed_head_dim=True),
    "glm4": TinyArchitecture("glm4", "gpt-2", glm4, 2, head_factor=2, epsilon=1e-5),
    "smollm3": TinyArchitecture("smollm3", "llama-bpe", smollm3, 4),
    "seed_oss": TinyArchitecture("seed_oss", "gpt-2", seed_oss, 2, head_factor=2),
    "ernie4_5": TinyArchitecture("ernie4_5", "llama", ernie4_5, 2, head_factor=2, epsilon=1e-5),
    "exaone": TinyArchitecture("exaone", "gpt-2", exaone, 2),
    "gemma": TinyArchitecture("gemma", "gemma", gemma, 2, head_factor=2),
    "qwen2moe": TinyArchitecture("qwen2moe", "qwen2", qwen2moe, 2, fixed_head_dim=True),
    "olmoe": TinyArchitecture("olmoe", "gpt-2", olmoe, 2, epsilon=1e-5, fixed_head_dim=True),
    "granitemoe": TinyArchitecture("granitemoe", "gpt-2", granitemoe, 2, epsilon=1e-5, fixed_head_dim=True),
    "bert": TinyArchitecture("bert", "bert", bert, 2, fixed_head_dim=True, embeds=True, causal=False),
    "bertrank": TinyArchitecture("bert", "bert", bertrank, 2, fixed_head_dim=True, embeds=True, causal=False),
    "nomicbert": TinyArchitecture(
        "nomic-bert", "bert", nomicbert, 3, fixed_head_dim=True, embeds=True, causal=False
    ),
    "qwen3rank": TinyArchitecture("qwen3", "qwen3rank", qwen3rank, 2, head_factor=2, embeds=True),
}
CAUSAL = tuple(name for name, row in ARCHITECTURES.items() if row.causal)
GENERATORS = tuple(name for name, row in ARCHITECTURES.items() if not row.embeds)
