"""References of the Triton corpus: random numbers against published ones, and that a wrong element is counted."""

from __future__ import annotations

import numpy as np

from zinc_rt.perf.triton_kernels.references import CorpusOutput, philox, references


def test_philox_gives_the_published_numbers() -> None:
    words = philox(np.zeros(1, np.uint32), 0)[:, 0]  # known answers of Random123: counter 0, key 0
    assert [int(word) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_wrong_elements_and_stores_past_the_end_are_counted() -> None:
    expected = CorpusOutput(np.array([1.0, 2.0]), 1e-3)
    assert expected.wrong_elements(np.array([1.0005, 2.0, 0.0], np.float32)) == 0
    assert expected.wrong_elements(np.array([1.0, 2.1, 7.0], np.float32)) == 2


def test_reference_belongs_to_the_kernel_of_its_name() -> None:
    x = np.arange(8, dtype=np.float32)
    [(name, output)] = references("add_w4", {"x": x, "y": x, "n": 6}).items()
    assert name == "out" and output.values.tolist() == [0, 2, 4, 6, 8, 10]
