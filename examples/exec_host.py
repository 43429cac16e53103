"""The host of exec_host.c in Python: the same library replays the same image, and takes and restores capsules.

python examples/exec_host.py --model M.gguf --tokens 1,2,3 --count 8
python examples/exec_host.py --model M.gguf --tokens 1,2,3 --count 8 --fork     two sequences from one capsule
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from zinc_rt.backends.exec_library import load_exec_library
from zinc_rt.cli.options import parse_tokens
from zinc_rt.engine import Engine
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.image import IMAGE, KERNELS, write_host_folder
from zinc_rt.errors import ZincError
from zinc_rt.exec.abi import make_key
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf

SECOND = 10**9
ONE_TOKEN = make_key(1, 1, 1)
TABLES = {"pages_0": "state.page_table", "pages_1": "state.page_table_1"}


class ImageHost:
    """A host of an image. Sequences are numbered by slot; each has an equal share of every group's units."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        self.library = load_exec_library()
        call = self.library.call
        self.context = call("context_create", {"threads": threads, "kernels": folder / KERNELS})
        self.image = call("image_open", self.context, folder / IMAGE, None)
        self.stream = call("stream_create", self.context, "main", 0)
        self.graph = call("image_graph", self.image, "decode")
        self.slots, self.page_tokens, ctx = map(self.property, ("slots", "page_tokens", "ctx"))
        self.shares = {name: self.property(f"{name}.units", 0) // self.slots for name in TABLES}
        self.has_state = bool(self.property("state_rows.units", 0))
        self.pages = -(-ctx // self.page_tokens)
        for slot in range(self.slots):
            for group, share in self.shares.items():
                if share:
                    pages = slot * share + np.arange(self.pages, dtype=np.int32) % share
                    self.write(TABLES[group], pages, 4 * slot * self.pages)
        self.write("step.counts", np.array([1, 1, 1, 0, 0, 0, 0, 0]))
        self.write("request[slot].logit_row", 0)

    def close(self) -> None:
        self.library.call("context_destroy", self.context)

    def property(self, name: str, default: int | None = None) -> int:
        try:
            return int(self.library.call("image_property", self.image, name))
        except ZincError:
            if default is None:
                raise
            return default

    def write(self, name: str, value: object, offset_bytes: int = 0) -> None:
        port = self.library.call("graph_port", self.graph, ONE_TOKEN, name)
        data = np.asarray(value, np.int32).tobytes()
        self.library.call("buffer_write", port.buffer, port.offset_bytes + offset_bytes, data, len(data))

    def read(self, name: str, dtype: str) -> np.ndarray:
        port = self.library.call("graph_port", self.graph, ONE_TOKEN, name)
        data = bytearray(port.size_bytes)
        self.library.call("buffer_read", port.buffer, port.offset_bytes, data, len(data))
        return np.frombuffer(data, dtype)

    def step(self, slot: int, token: int, position: int) -> int:
        """Compute one token of a sequence and return the most likely next one."""
        self.write("request[slot].token_id", token)
        self.write("request[slot].position", position)
        self.write("request[slot].slot", slot)
        if self.has_state:  # row 0 is zero; a sequence has the row after its slot
            self.write("request[slot].state_source", slot + 1 if position else 0)
            self.write("request[slot].state_target", slot + 1)
        self.library.call("graph_replay", self.graph, ONE_TOKEN, self.stream)
        self.library.call("stream_synchronize", self.stream, 60 * SECOND)
        return int(self.read("request[slot].next_token", "<i4")[0])

    def run(self, slot: int, tokens: list[int], first: int, count: int) -> list[int]:
        """Compute tokens from position `first` on, then `count` in all of the most likely ones that follow."""
        answer: list[int] = []
        position = first
        for token in tokens:
            following = self.step(slot, token, position)
            position += 1
        while True:
            answer.append(following)
            if len(answer) == count:
                return answer
            following = self.step(slot, following, position)
            position += 1

    def units(self, slot: int, tokens: int) -> dict[str, list[int]]:
        """Return the units that hold the state of a sequence of `tokens` tokens, by group."""
        used = -(-tokens // self.page_tokens)
        units = {
            group: [slot * share + page for page in range(min(used, share))]
            for group, share in self.shares.items()
            if share
        }
        return {**units, **({"state_rows": [slot + 1]} if self.has_state else {})}

    def save(self, path: Path, slot: int, tokens: int) -> None:
        """Write the state of a sequence to a file."""
        note = np.array([tokens], np.int32).tobytes()
        capsule = self.library.take_capsule(self.image, self.units(slot, tokens), note)
        self.library.call("capsule_write", capsule, path)
        self.library.call("capsule_destroy", capsule)

    def load(self, path: Path, *slots: int) -> int:
        """Continue the sequence of a file in each of the slots. Return its number of tokens."""
        capsule = self.library.call("capsule_read", self.image, path)
        note = bytearray(4)
        self.library.call("capsule_note", capsule, note, len(note))
        tokens = int(np.frombuffer(note, np.int32)[0])
        for slot in slots:
            self.library.restore_capsule(capsule, self.units(slot, tokens))
        self.library.call("capsule_destroy", capsule)
        return tokens


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="exec_host.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = FOLDER / "qwen3-q.gguf"
    parser.add_argument(
        "--model",
        type=Path,
        default=model,
        metavar="FILE",
        help=f"a GGUF model (default: the shipped {model.name})",
    )
    parser.add_argument(
        "--tokens", type=parse_tokens, default=[1, 2, 3], metavar="IDS", help="the prompt, like 1,2,3"
    )
    parser.add_argument("--count", type=int, default=8, metavar="N", help="tokens to print (default 8)")
    parser.add_argument("--fork", action="store_true", help="save the state after the prompt, continue it twice")
    arguments = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as name:
            return run_host(Path(name), arguments)
    except ZincError as error:
        print(f"exec_host.py: {error}", file=sys.stderr)
        return error.exit_code


def run_host(folder: Path, arguments: argparse.Namespace) -> int:
    backend = open_backend(choose_tier("t_cpu_native", "auto"), "canonical-1")
    with Engine(read_gguf(arguments.model), backend, slots=2) as engine:
        write_host_folder(engine, folder)
    host = ImageHost(folder)
    *start, last = arguments.tokens
    if arguments.fork and start:
        host.run(0, start, 0, 1)
        host.save(folder / "start.zcap", 0, len(start))
        position = host.load(folder / "start.zcap", 0, 1)
        for slot in (0, 1):
            print(*host.run(slot, [last], position, arguments.count))
    else:
        print(*host.run(0, arguments.tokens, 0, arguments.count))
    host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
