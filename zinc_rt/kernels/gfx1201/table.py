"""The kernels of gfx1201: their files, and the parameters that the rows need."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.rows import matvec_parts
from zinc_rt.kernels.rows.expand import EVERY_OTHER_TYPE, count_packed_bytes, pack_weight
from zinc_rt.kernels.rows.families import list_entries
from zinc_rt.kernels.rows.repack import WEIGHT_TYPES
from zinc_rt.kernels.rows.tuning import OWN_KERNELS, Tuning
from zinc_rt.kernels.sets import BinaryKernels, BinaryKernelSet, Merging
from zinc_rt.kernels.zrt import Zrt, read_zrt

TUNING = Tuning(
    orderings=frozenset({"canonical-1", "canonical-1-q8"}),
    weight_dtypes=WEIGHT_TYPES,
    expansions=EVERY_OTHER_TYPE,
    columns=256,  # elementwise.inc
    slice_columns=512,
    embed_columns=256,
    copy_columns=512,  # kv_write.s
    expert_columns=128,
    matvec_rows=16,  # four waves of four rows
    matmul_rows=8,
    matmul_tokens=4,
    matmul_capacity=16,
    grid_rows=0xFFFF,
    flash_widths=(128, 512),
    latent_widths=(512,),
    flash_multiple=4,
    flash_batch=8,  # flash_attn.inc
    experts_maximum=1024,
    choices_maximum=128,
    conv_taps=4,
    state_columns=256,
    gate_heads=32,
    delta_values=4,
    delta_head_maximum=128,  # each wave holds one element of a dot product's 128 accumulators
    scan_channels=32,
    scan_states_maximum=16,  # in registers
    vocabulary_maximum=1 << 18,  # 256 logits a work-item
    sample_block=16,
    sample_columns=1024,
    flash_workgroups=1024,  # 64 CUs hold 192 to 256 at a time; those beyond the context end immediately
    flash_whole_chunks=4,  # `perf predict`: splitting 1,024 keys saves as much as the second dispatch costs
    wmma_tokens=128,
    wmma_rows=64,
    own_kernels=OWN_KERNELS,
    fused_tokens=16,
    skips_columns=True,
    any_vectors=True,
)


_BUILT = files(__package__) / "built"


@cache
def load(name: str) -> Zrt:
    """Return the committed kernel `name`. Raise UnsupportedError if there is no such kernel."""
    file = _BUILT.joinpath(f"{name}.zrt")
    if not file.is_file():
        raise UnsupportedError(f"no gfx1201 kernel {name}", next="assemble it: zinc-rt asm --all")
    return read_zrt(file.read_bytes(), file.name)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the committed containers."""
    names = (file.name for file in _BUILT.iterdir())
    return tuple(sorted(name.removesuffix(".zrt") for name in names if name.endswith(".zrt")))


def make_set(
    target: str, tuning: Tuning, names: Callable[[], tuple[str, ...]], load: Callable[[str], Zrt]
) -> BinaryKernelSet:
    """Return the kernel set of a chip that runs this folder's sources."""
    return BinaryKernels(
        target,
        list_entries(tuning),
        partial(pack_weight, EVERY_OTHER_TYPE),
        partial(count_packed_bytes, EVERY_OTHER_TYPE),
        names,
        load,
        expansions=EVERY_OTHER_TYPE,
        fuses=True,
        merging=Merging(
            matvec_parts.PARTS, matvec_parts.launch_key, matvec_parts.merge_launches, matvec_parts.can_merge
        ),
    )


KERNELS = make_set("gfx1201", TUNING, names, load)
