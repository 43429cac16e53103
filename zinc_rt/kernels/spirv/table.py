"""The Vulkan kernels: their files, and the parameters that the rows need."""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.rows.expand import EVERY_OTHER_TYPE, count_packed_bytes, pack_weight
from zinc_rt.kernels.rows.families import list_entries
from zinc_rt.kernels.rows.repack import WEIGHT_TYPES
from zinc_rt.kernels.rows.tuning import Tuning
from zinc_rt.kernels.sets import SpirvKernels, SpirvKernelSet

TUNING = Tuning(
    orderings=frozenset({"canonical-1", "canonical-1-q8"}),
    weight_dtypes=WEIGHT_TYPES,
    expansions=EVERY_OTHER_TYPE,
    columns=256,
    slice_columns=512,
    embed_columns=512,
    copy_columns=512,
    expert_columns=128,
    matvec_rows=16,
    matmul_rows=8,
    matmul_tokens=4,
    matmul_capacity=16,  # on lavapipe a tile of four tokens is faster than three by matvec
    grid_rows=0xFFFF,  # minimum limit of each axis
    flash_widths=(128, 512, 2048),
    latent_widths=(512, 2048),
    flash_multiple=1,
    flash_batch=1,
    experts_maximum=1024,
    choices_maximum=128,
    conv_taps=4,
    state_columns=128,  # one per invocation of conv1d, load_rows and store_rows
    gate_heads=32,
    delta_values=32,
    delta_head_maximum=128,  # an invocation holds a row of the state in registers
    vocabulary_maximum=1 << 24,  # a count that is exact as a float
    sample_block=16,
    sample_columns=1024,
    any_vectors=True,
    scan_channels=32,
    scan_states_maximum=16,  # in an invocation's registers
    wmma_tokens=32,  # wmma.glsl
    wmma_rows=32,
    own_kernels=frozenset({"matmul_wmma"}),
)


ENTRIES = list_entries(TUNING)
_BUILT = files(__package__) / "built"


@cache
def module(name: str) -> bytes:
    """Return the committed SPIR-V of kernel `name`. Raise UnsupportedError if there is no such kernel."""
    file = _BUILT.joinpath(f"{name}.spv")
    if not file.is_file():
        raise UnsupportedError(f"no spirv kernel {name}", next="compile it: zinc-rt vulkan compile")
    return file.read_bytes()


@cache
def names() -> tuple[str, ...]:
    """Return the names of the committed modules."""
    files = (file.name for file in _BUILT.iterdir())
    return tuple(sorted(name.removesuffix(".spv") for name in files if name.endswith(".spv")))


KERNELS: SpirvKernelSet = SpirvKernels(
    "spirv",
    ENTRIES,
    partial(pack_weight, EVERY_OTHER_TYPE),
    partial(count_packed_bytes, EVERY_OTHER_TYPE),
    names,
    module,
    expansions=EVERY_OTHER_TYPE,
)
