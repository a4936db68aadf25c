"""The loop of `nsqc top`: nodes' answers and keys in, lines out."""

from __future__ import annotations

import time

from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import Values
from nsqc.tools.errors import NoNode
from nsqc.tools.top.model import Model
from nsqc.tools.top.sampling import Sampler
from nsqc.tools.top.screen import Screen
from nsqc.tools.top.stats import Sample
from nsqc.tools.top.terminal import Terminal

WORDS = "nsqc top"


def top(values: Values) -> int:
    """Runs until q. Raises ToolError."""
    terminal = Terminal()
    cluster = Cluster(values, WORDS)
    nodes = cluster.nodes()
    if not nodes:
        raise NoNode("no nsqd is registered")
    sampler = Sampler(cluster, values.seconds("interval"))
    sampler.with_clients = values.text("view") == "clients"
    # Before the screen is taken over: if no node answers, that is a line on stderr.
    cluster.each(nodes, lambda api, node: sampler.arrived.append(Sample(node.http, api.stats(), None)), lambda _: None)
    model = Model(sampler)
    sampler.start(nodes)
    model.take()
    with terminal:
        screen = Screen(model, sampler, values.text("view"), values.text("filter"), terminal.unicode)
        screen.refresh()
        try:
            while not screen.ended:
                columns, height = terminal.size
                terminal.show(screen.lines(columns, height))
                keys = terminal.wait(1.0 - time.time() % 1.0, sampler.fileno())    # until the clock changes
                sampler.calm()
                if terminal.suspended:
                    terminal.suspend()
                for key in keys:
                    if key == "redraw":
                        terminal.redraw()
                    screen.press(key)
                if model.take() or sampler.reports:
                    screen.refresh()
        finally:
            sampler.close()
    return 0
