"""The execution interface: buffers, graphs of prebuilt variants, streams, plans. It contains mechanisms, no
policy."""

from zinc_rt.exec.buffer import Buffer, Usage, wrap
from zinc_rt.exec.cache import GraphCache
from zinc_rt.exec.copy import Copier, copy
from zinc_rt.exec.fence import DeadlineMissed, Fence, JoinedFence
from zinc_rt.exec.graph import Graph, InFlight, Launcher, MissingVariant, Observer, ShapeKey
from zinc_rt.exec.host_executor import HostExecutor, HostFence
from zinc_rt.exec.plan import Plan
from zinc_rt.exec.stream import Event, Stream

__all__ = [
    "Buffer",
    "Copier",
    "DeadlineMissed",
    "Event",
    "Fence",
    "Graph",
    "GraphCache",
    "HostExecutor",
    "HostFence",
    "InFlight",
    "JoinedFence",
    "Launcher",
    "MissingVariant",
    "Observer",
    "Plan",
    "ShapeKey",
    "Stream",
    "Usage",
    "copy",
    "wrap",
]
