"""The draws that a golden records: the generator by its authors' answers, the embedded ones by this sampler."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.golden.draws import WAYS, compute_philox, draw_reference_token, read_draws
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.golden.format import read_golden
from zinc_rt.host.errors import InputError
from zinc_rt.sched.sampling import Sampling

MOST = 0xFFFFFFFF
# philox4x32 10 of Random123's kat_vectors: counter, key, answer
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MOST,) * 4, (MOST,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_matches_reference_vectors(
    counter: tuple[int, int, int, int], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    assert compute_philox(counter, key) == answer


@pytest.mark.parametrize("pair", list_embedded_pairs(), ids=lambda pair: pair.model.stem)
def test_embedded_golden_covers_every_sampling_mode(pair: object) -> None:
    golden = read_golden(pair.golden)  # type: ignore[attr-defined]
    draws = read_draws(golden.meta, "it")
    assert {(d.temperature, d.top_k, d.top_p, d.min_p) for d in draws} == set(WAYS)
    assert len({d.token for d in draws}) > 2 and len({d.seed for d in draws}) == len(draws)
    logits = dict(zip(range(len(golden.ids)) if golden.rows is None else golden.rows, golden.logits, strict=False))
    for draw in draws:
        if draw.row in logits and len(golden.logits) == len(golden.ids):
            asked = {name: getattr(draw, name) for name in ("temperature", "top_k", "top_p", "min_p", "seed")}
            row = np.asarray(golden.logits[draw.row])
            assert (
                draw_reference_token(Sampling(**asked), row, choice=draw.choice, position=draw.position)
                == draw.token
            )


def test_draws_of_wrong_shape_are_rejected() -> None:
    assert read_draws({}, "g.npz") == []
    with pytest.raises(InputError, match=r"g\.npz: cannot parse the draws in meta"):
        read_draws({"draws": [{"row": 1, "heat": 2}]}, "g.npz")
