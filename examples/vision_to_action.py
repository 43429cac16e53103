"""A host program that turns a camera frame into a movement with three graphs, which pass buffers without a copy.

    python examples/vision_to_action.py
    python examples/vision_to_action.py --tier t1 --device sim

    frame --> [vision] --features--> [encoder] --thought--> [action] --> movement
                                                   goal -------^

`features` and `thought` are one buffer each, bound by the graph that writes it and the one that reads it. Vision
runs on a separate stream, and the encoder waits for it on the device. The goal is a buffer too: the host
overwrites it between two runs, without a rebuild. Every movement is compared with NumPy's, bit for bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import numpy as np

from zinc_rt.backends.base import Backend
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.errors import ZincError
from zinc_rt.exec import Buffer, Graph, Plan, Stream
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import ABSENT, Builder
from zinc_rt.ir.op import Op
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import lower
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import plan_memory

PATCHES, PIXELS, WIDTH, HIDDEN, JOINTS = 16, 48, 64, 96, 7
EPS, CAP = 1e-6, 1.0
ORDERING = "canonical-1"
ROWS = "tokens"  # what the IR calls the rows that a step works on: patches here, and one in `action`
TIMEOUT_SECONDS = 120.0
SHAPES = {  # of the weights, (out, in)
    "model.patch_w": (WIDTH, PIXELS),
    "model.patch_b": (WIDTH,),
    "model.gate_w": (HIDDEN, WIDTH),
    "model.up_w": (HIDDEN, WIDTH),
    "model.down_w": (WIDTH, HIDDEN),
    "model.look_w": (WIDTH, PATCHES * WIDTH),
    "model.move_w": (JOINTS, WIDTH),
}
Weights = Mapping[str, np.ndarray]


def declare_buffers(name: str, buffers: Mapping[str, tuple[ir.Role, int]]) -> Builder:
    """Return a builder with the step block's counts and these f32 buffers, with their numbers of columns."""
    builder = Builder(name)
    builder.buffer("step.counts", (3,), "i32", "step")
    for buffer, (role, columns) in buffers.items():
        builder.buffer(buffer, (ROWS, columns), "f32", role)
    return builder


def declare_weight(builder: Builder, name: str) -> str:
    return builder.buffer(f"model.{name}", SHAPES[f"model.{name}"], "f32", "weight")


def build_vision() -> ir.OpGraph:
    """Convert patches of a frame to features."""
    b = declare_buffers(
        "vision",
        {
            "step.frame": ("step", PIXELS),
            "act.patches": ("activation", WIDTH),
            "out.features": ("output", WIDTH),
        },
    )
    patches = ("step.frame", declare_weight(b, "patch_w"), declare_weight(b, "patch_b"), ABSENT)
    b.node(Op.MATMUL, patches, ("act.patches",), label="patches")
    b.node(Op.RMS_NORM, ("act.patches", ABSENT), ("out.features",), label="features", eps=EPS, size=WIDTH)
    return b.build()


def add_encoder() -> ir.OpGraph:
    """Add the output of a gated layer to the features of each patch."""
    b = declare_buffers(
        "encoder",
        {
            "state.features": ("state", WIDTH),
            "act.gate": ("activation", HIDDEN),
            "act.up": ("activation", HIDDEN),
            "act.inner": ("activation", HIDDEN),
            "act.change": ("activation", WIDTH),
            "out.thought": ("output", WIDTH),
        },
    )
    for name in ("gate", "up"):
        b.node(
            Op.MATMUL,
            ("state.features", declare_weight(b, f"{name}_w"), ABSENT, ABSENT),
            (f"act.{name}",),
            label=name,
        )
    b.node(Op.SWIGLU, ("act.gate", "act.up"), ("act.inner",), label="inner")
    b.node(Op.MATMUL, ("act.inner", declare_weight(b, "down_w"), ABSENT, ABSENT), ("act.change",), label="change")
    b.node(Op.ADD, ("state.features", "act.change"), ("out.thought",), label="thought")
    return b.build()


def build_action() -> ir.OpGraph:
    """Compute a movement of each joint, within -1 and 1, from the features of all patches, as one row, and the
    goal.
    """
    b = declare_buffers(
        "action",
        {
            "state.thought": ("state", PATCHES * WIDTH),  # the encoder's bytes, read as one row
            "step.goal": ("step", WIDTH),
            "act.look": ("activation", WIDTH),
            "act.wish": ("activation", WIDTH),
            "act.move": ("activation", JOINTS),
            "out.movement": ("output", JOINTS),
        },
    )
    b.node(Op.MATMUL, ("state.thought", declare_weight(b, "look_w"), ABSENT, ABSENT), ("act.look",), label="look")
    b.node(Op.ADD, ("act.look", "step.goal"), ("act.wish",), label="wish")
    b.node(Op.MATMUL, ("act.wish", declare_weight(b, "move_w"), ABSENT, ABSENT), ("act.move",), label="move")
    b.node(Op.SOFTCAP, ("act.move",), ("out.movement",), label="movement", cap=CAP)
    return b.build()


class Robot:
    """Three graphs, built once over shared buffers, and the plan that runs them."""

    def __init__(self, backend: Backend, weights: Weights) -> None:
        self.backend = backend
        self._weights = backend.upload({name: Weight("f32", w.shape, w) for name, w in weights.items()}, {})
        self._offsets: dict[str, int] = {}
        size_bytes = 4 * PATCHES * WIDTH
        features = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, "features")
        thought = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, "thought")
        self.vision = self._built(build_vision(), PATCHES, {"out.features": features})
        self.encoder = self._built(add_encoder(), PATCHES, {"state.features": features, "out.thought": thought})
        self.action = self._built(build_action(), 1, {"state.thought": thought})
        eyes, hands = Stream("eyes"), Stream("hands", priority=1)
        self._plan = Plan()
        see = self._plan.add(self.vision, (PATCHES,), eyes)
        think = self._plan.add(self.encoder, (PATCHES,), hands)
        move = self._plan.add(self.action, (1,), hands)
        self._plan.after(think, see)
        self._plan.after(move, think)

    def _built(self, graph: ir.OpGraph, rows: int, shared: Mapping[str, Buffer]) -> Graph:
        """Verify, place, lower and build one variant; the host's ports are the graph's own buffer names."""
        backend = self.backend
        verify_graph(graph)
        plan = plan_memory(graph, capacity={ROWS: rows})
        program = lower(graph, backend.kernels.entries, plan, ordering=ORDERING, tier=backend.spec.tier)
        buffers = {plan.placements[name].allocation: buffer for name, buffer in shared.items()}
        for name, allocation in plan.allocations.items():
            if not name.startswith("weight/") and name not in buffers:
                buffers[name] = backend.alloc(allocation.size_bytes, allocation.heap, f"{graph.name} {name}")
        built = Graph(graph.name, backend, ir=graph)
        built.add((rows,), backend.build(program, {**self._weights, **buffers}))
        for name, placement in plan.placements.items():
            if placement.allocation in buffers:
                built.bind(name, buffers[placement.allocation])
                self._offsets[f"{graph.name} {name}"] = placement.offset_bytes
        self._write(built, "step.counts", np.array([rows, 0, 0], np.int32))
        return built

    def show(self, frame: np.ndarray) -> None:
        self._write(self.vision, "step.frame", frame)

    def aim(self, goal: np.ndarray) -> None:
        self._write(self.action, "step.goal", goal)

    def _write(self, graph: Graph, port: str, value: np.ndarray) -> None:
        graph.write(port, self._offsets[f"{graph.name} {port}"], np.ascontiguousarray(value))

    def act(self) -> np.ndarray:
        """Return a movement, f32 [JOINTS], for the current frame and goal."""
        self._plan.execute().wait(TIMEOUT_SECONDS)
        return np.frombuffer(bytes(self.action.view("out.movement", 0, 4 * JOINTS)), np.float32)


def expected_movement(frame: np.ndarray, goal: np.ndarray, weights: Weights) -> np.ndarray:
    """Compute the same in NumPy, with the sums and functions of canonical-1."""
    math = arithmetic(ORDERING)

    def apply_linear(x: np.ndarray, name: str) -> np.ndarray:
        w = weights[f"model.{name}"]
        return math.linear(x, Weight("f32", w.shape, w))

    patches = apply_linear(frame, "patch_w") + weights["model.patch_b"]
    mean_square = math.dot(patches, patches) / np.float32(WIDTH)
    features = patches * math.rsqrt(mean_square + np.float32(EPS))[:, None]
    inner = math.silu(apply_linear(features, "gate_w")) * apply_linear(features, "up_w")
    thought = (features + apply_linear(inner, "down_w")).reshape(1, -1)
    move = apply_linear(apply_linear(thought, "look_w") + goal, "move_w")
    return (math.tanh(move / np.float32(CAP)) * np.float32(CAP))[0]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="vision_to_action.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tier", default="t_cpu", help="tier: t_cpu, t1, t2 or auto (default t_cpu)")
    parser.add_argument(
        "--device",
        choices=("auto", "hw", "cpu", "sim"),
        default="auto",
        help="sim: simulate a GPU; hw: never simulate",
    )
    parser.add_argument("--frames", type=int, default=4, metavar="N", help="to look at (default 4)")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the weights, frames and goals (default 1)"
    )
    arguments = parser.parse_args(argv)
    if arguments.frames < 1:
        parser.error(f"--frames {arguments.frames}: expected 1 or more")
    try:
        return run_loop(arguments)
    except ZincError as error:
        print(f"vision_to_action.py: {error}", file=sys.stderr)
        return error.exit_code


def run_loop(arguments: argparse.Namespace) -> int:
    random = np.random.default_rng(arguments.seed)
    weights = {
        name: random.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
        for name, shape in SHAPES.items()
    }
    choice = choose_tier(arguments.tier, arguments.device)
    print(f"tier      {choice.why}")
    backend = open_backend(choice, ORDERING)
    wrong = 0
    try:
        robot = Robot(backend, weights)
        for number in range(arguments.frames):
            if number % 2 == 0:  # somebody changes their mind every other frame
                goal = random.standard_normal((1, WIDTH), np.float32)
                robot.aim(goal)
            frame = random.standard_normal((PATCHES, PIXELS), np.float32)
            robot.show(frame)
            movement = robot.act()
            same = movement.tobytes() == expected_movement(frame, goal, weights).tobytes()
            wrong += not same
            shown = " ".join(f"{joint:+.3f}" for joint in movement)
            print(f"frame {number:<4}goal {number // 2}  {shown}  {'as NumPy' if same else 'DIFFERENT'}")
        findings = backend.instrument.findings() if backend.instrument is not None else []
    finally:
        backend.close()
    for finding in findings:
        print(f"finding   {finding}")
    failed = bool(wrong or findings)
    right = arguments.frames - wrong
    print(
        f"{'FAIL' if failed else 'PASS'}      3 graphs built once; {right} of {arguments.frames} movements are "
        "NumPy's, bit for bit"
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
