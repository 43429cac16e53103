"""The file written by `perplexity --save-base`: a text's tokens and the logits of every scored row, as an .npz.

Logits are float32 as the tier left them, uncompressed, and are written and read row by row: a model with 152,000
tokens has 608 kB a row, more than should lie in memory for a whole text.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from zinc_rt.host.errors import InputError, OutputError
from zinc_rt.host.input_files import make_read_error

FORMAT = "zinc-rt-perplexity/1"
LOGITS, META, TOKENS = "logits.npy", "meta.npy", "tokens.npy"
AGAIN = "make it again with --save-base"


@contextmanager
def open_writer(path: str, meta: dict[str, Any], tokens: list[int], rows: int, vocab: int) -> Iterator[RowWriter]:
    """Open the file for writing. The file is given its final name if the block succeeds and all `rows` were
    written. Raises OutputError.
    """
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.part")
    free = shutil.disk_usage(target.parent).free
    if rows * vocab * 4 > free:
        raise OutputError(
            f"{path}: needs {rows * vocab * 4 / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free",
            next="use fewer --chunks, a smaller --ctx, or another disk",
        )
    try:
        with (
            _name_errors(path),
            zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
        ):
            for name, array in (
                (META, np.array(json.dumps({"format": FORMAT, **meta}))),
                (TOKENS, np.array(tokens, np.int32)),
            ):
                with archive.open(name, "w") as file:
                    np.lib.format.write_array(file, array)
            with archive.open(LOGITS, "w", force_zip64=True) as file:
                head = {"descr": "<f4", "fortran_order": False, "shape": (rows, vocab)}
                np.lib.format.write_array_header_1_0(file, head)
                writer = RowWriter(file, path)
                yield writer
        if writer.rows != rows:
            raise OutputError(f"{path}: only {writer.rows} of {rows} rows were written", next=AGAIN)
        with _name_errors(path):
            unfinished.replace(target)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


@contextmanager
def _name_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}", next="choose another path") from error


@dataclass(slots=True)
class RowWriter:
    """Writes rows; `rows` counts them."""

    file: IO[bytes]
    path: str
    rows: int = 0

    def __call__(self, logits: np.ndarray) -> None:
        with _name_errors(self.path):
            self.file.write(np.ascontiguousarray(logits, "<f4").data)
        self.rows += len(logits)


class BaseLogits:
    """A context manager that reads a file: `meta`, the `tokens` of the text, `vocab`. Raises InputError for an
    invalid file or another format.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
            self.meta: dict[str, Any] = json.loads(str(self._read_array(META)))
            self.tokens: list[int] = self._read_array(TOKENS).tolist()
            self._file = self._archive.open(LOGITS)
            version = np.lib.format.read_magic(self._file)
            if version != (1, 0):
                raise ValueError(f"unsupported .npy version {version}")
            shape, _, dtype = np.lib.format.read_array_header_1_0(self._file)
            self.rows, self.vocab = (int(size) for size in shape)
            if dtype != np.dtype("<f4"):
                raise ValueError(f"logits are {dtype}, expected float32")
        except OSError as error:
            raise make_read_error(path, error) from error
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: not a perplexity base file: {error}", next=AGAIN) from error
        if self.meta.get("format") != FORMAT:
            raise InputError(
                f"{path}: format {self.meta.get('format')!r}; this build reads {FORMAT!r}", next=AGAIN
            )

    def _read_array(self, name: str) -> np.ndarray:
        with self._archive.open(name) as file:
            return np.asarray(np.lib.format.read_array(file))

    def __call__(self, count: int) -> np.ndarray:
        """Return the next rows, f32 [count, V]. Raise InputError if the file is truncated."""
        size = 4 * count * self.vocab
        try:
            data = self._file.read(size)
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path}: {error}", next=AGAIN) from error
        if len(data) != size:
            raise InputError(f"{self.path}: truncated: it must have {self.rows} rows", next=AGAIN)
        return np.frombuffer(data, "<f4").reshape(count, self.vocab)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._archive.close()
