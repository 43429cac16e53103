"""One recording for each engine that a command opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from zinc_rt.commands.output import size
from zinc_rt.engine import Engine
from zinc_rt.trace.levels import Level
from zinc_rt.trace.recorder import Recorder, record


class Recordings:
    """`around` goes into zinc_rt.engine.around_engines. The first engine's log has the given name."""

    def __init__(
        self,
        path: str | Path,
        level: Level,
        *,
        embed_weights: bool = False,
        argv: Sequence[str] = (),
        say: Callable[[str], None],
    ) -> None:
        self._path = Path(path)
        self._level: Level = level
        self._embed = embed_weights
        self._argv = tuple(argv)
        self._say = say
        self.recorders: list[Recorder] = []

    def around(self, engine: Engine) -> AbstractContextManager[Recorder]:
        return self._one(engine)

    @contextmanager
    def _one(self, engine: Engine) -> Iterator[Recorder]:
        number = len(self.recorders) + 1
        path = self._path if number == 1 else self._path.with_suffix(f".{number}{self._path.suffix}")
        with record(
            engine, path, self._level, embed_weights=self._embed, argv=self._argv, warn=self._say
        ) as recorder:
            self.recorders.append(recorder)
            yield recorder

    def summary(self) -> Iterator[str]:
        if not self.recorders:
            yield "trace     no engine was opened, so nothing was recorded"
        for recorder in self.recorders:
            again = "" if self._level == "digest" else f"; {recorder.replay_command}"
            yield f"trace     {recorder.path}: {recorder.steps} steps, {size(recorder.size_bytes)}{again}"
