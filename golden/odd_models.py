"""Generate the models of odd_models.yaml, with goldens from the float64 derivation, into the user's cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.golden.derivation import SOURCE, derive_golden, derive_texts
from zinc_rt.golden.embedded import Pair
from zinc_rt.golden.format import write_golden
from zinc_rt.golden.make import make_metadata
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, OutputError
from zinc_rt.host.files import cache_folder, load_yaml
from zinc_rt.model.gguf import read_gguf

FOLDER = Path(__file__).parent
TABLE = FOLDER / "odd_models.yaml"
LARGEST_BYTES = 4 << 20
STEPS = 4


@dataclass(frozen=True, slots=True)
class OddModel:
    """A row of odd_models.yaml. `prompt`: number of tokens; `quick`: part of `validate` without a model."""

    name: str
    architecture: str
    quant: str
    sizes: dict[str, int]
    prompt: int
    classes: tuple[str, ...] = ()
    seed: int = 0
    quick: bool = False

    @property
    def tokens(self) -> list[int]:
        """Return the prompt: distinct tokens over the whole vocabulary, its last included."""
        return [(37 * index - 1) % self.sizes["vocab"] for index in range(self.prompt)]


def load_odd_models() -> tuple[OddModel, ...]:
    return tuple(
        OddModel(**row | {"classes": tuple(row["classes"])}) for row in load_yaml(TABLE.read_text("utf-8"))
    )


def find_odd_models(names: Iterable[str]) -> list[OddModel]:
    """Return the rows with these names. Raises InputError for an unknown name."""
    rows = {row.name: row for row in load_odd_models()}
    for name in names:
        if name not in rows:
            raise InputError(f"no odd model {name!r}", next=f"one of {', '.join(rows)}")
    return [rows[name] for name in names]


def generate_odd_pair(row: OddModel) -> Pair:
    """Return the model and its golden, generated unless an earlier run has left them in the cache. Raises
    OutputError if the cache cannot be written.
    """
    folder = cache_folder() / "odd-models" / f"{row.name}-{_digest_row(row)}"
    pair = Pair(folder / f"{row.name}.gguf", folder / f"{row.name}.npz")
    if pair.golden.exists() and pair.model.exists():
        return pair
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot write the generated model: {error.strerror}") from error
    write_tiny(pair.model, row.architecture, seed=row.seed, quant=row.quant, **row.sizes)
    arrays = derive_golden(pair.model, row.tokens, STEPS)
    gguf = read_gguf(pair.model)
    meta = make_metadata(gguf, SOURCE, row.sizes.get("context", 256), "zinc-rt selftest --models")
    write_golden(pair.golden, arrays, meta | {"tokenizer": derive_texts(pair.model)})
    return pair


def list_quick_pairs() -> list[Pair]:
    """Return the odd models of `validate` without a model."""
    return [generate_odd_pair(row) for row in load_odd_models() if row.quick]


def list_missed_classes() -> list[str]:
    """Return the shape classes that `validate` without a model does not reach."""
    rows = load_odd_models()
    quick = {name for row in rows if row.quick for name in row.classes}
    return list(dict.fromkeys(name for row in rows for name in row.classes if name not in quick))


def _digest_row(row: OddModel) -> str:
    """Return a digest of the row and of the code that generates and derives."""
    digest = hashlib.sha256(repr(row).encode())
    for path in (*sorted((FOLDER / "tiny_models").glob("*.py")), FOLDER / "derivation.py", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
