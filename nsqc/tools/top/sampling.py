"""Queries nodes in the background: one thread per node, so a hanging one delays neither the others nor the screen."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from nsqc.client.errors import ClientError
from nsqc.client.waker import Waker
from nsqc.tools.cluster import Cluster, Node
from nsqc.tools.errors import ToolError
from nsqc.tools.nodehttp import BadStatus, NodeHttp
from nsqc.tools.top.stats import Key, Sample

FIND_S = 15.0           # between two nsqlookupd queries
MOST_ASKED = 24         # ages of oldest messages queried per round
NOT_KNOWN = (404, 405)


class Sampler(Waker):
    """interval: seconds between two rounds, may be changed. The main thread takes the results; wake() notifies it."""

    def __init__(self, cluster: Cluster, interval: float):
        super().__init__()
        self.cluster, self.interval = cluster, interval
        self.with_clients = False
        self.wanted: list[Key] = []         # topics and channels whose oldest message is shown
        self.arrived: deque[Sample] = deque()
        self.errors: dict[str, str] = {}    # by node
        self.ages: dict[tuple[str, Key], float] = {}    # publish time of the oldest message, unix seconds
        self.nodes: list[Node] = []
        self.reports: deque[str] = deque()  # results of actions
        self._hurry = threading.Event()
        self._closing = False
        self._started: set[str] = set()

    def start(self, nodes: list[Node]) -> None:
        """Starts with these nodes."""
        self._use(nodes)
        if self.cluster.nsqlookupd:
            threading.Thread(target=self._find, daemon=True).start()

    def _use(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        for node in nodes:
            if node.http not in self._started:
                self._started.add(node.http)
                threading.Thread(target=self._ask, args=(node,), daemon=True).start()

    def hurry(self) -> None:
        """Queries all nodes now."""
        self._hurry.set()

    def close(self) -> None:
        """Threads end on their own, or with the process."""
        super().close()
        self._closing = True
        self._hurry.set()

    # ------------------------------------------------------------------ threads

    def _find(self) -> None:
        while not self._closing:
            time.sleep(FIND_S)
            with suppress(ToolError, ClientError):
                self._use(self.cluster.nodes())

    def _ask(self, node: Node) -> None:
        api = self.cluster.http(node)
        before: Sample | None = None
        knows_peek = True
        while not self._closing:
            began = time.monotonic()
            if node in self.nodes:
                try:
                    before = self._sample(api, node, before)
                    self.errors.pop(node.http, None)
                    if knows_peek:
                        knows_peek = self._ask_ages(api, node, before)
                except Exception as error:      # any error: this thread retries
                    self.errors[node.http] = str(error) or type(error).__name__
                    knows_peek = True
                self.wake()
            self._hurry.wait(max(self.interval - (time.monotonic() - began), 0.05))
            if self._hurry.is_set():
                # All threads see it: the longest sleeper has 50 ms for that.
                time.sleep(0.05)
                self._hurry.clear()

    def _sample(self, api: NodeHttp, node: Node, before: Sample | None) -> Sample:
        stats = api.stats(include_clients="true" if self.with_clients else "false")
        sample = Sample(node.http, stats, before)
        self.arrived.append(sample)
        self.wake()
        return sample

    def _ask_ages(self, api: NodeHttp, node: Node, sample: Sample) -> bool:
        """Publish times of the oldest messages shown; False: the node does not report them."""
        waiting: dict[Key, int] = {(topic.topic_name,): topic.depth for topic in sample.stats.topics or ()}
        waiting |= {(topic.topic_name, channel.channel_name): channel.depth for topic in sample.stats.topics or ()
                    for channel in topic.channels or ()}
        for key in self.wanted[:MOST_ASKED]:
            if not waiting.get(key):
                self.ages.pop((node.http, key), None)
                continue
            arguments = {"topic": key[0], "max_messages": "1", "body": "none"}
            if len(key) > 1:
                arguments["channel"] = key[1]
            try:
                page = api.get("/channel/peek" if len(key) > 1 else "/topic/peek", arguments)
            except BadStatus as error:
                if error.status in NOT_KNOWN and error.message == "NOT_FOUND":
                    return False
                continue
            if page["messages"]:
                self.ages[node.http, key] = page["messages"][0]["timestamp"] / 1e9
        return True

    def act(self, text: str, call: Callable[[NodeHttp], object]) -> None:
        """Makes a call on all nodes, in the background, and reports the result."""

        def work() -> None:
            failures = []
            for node in list(self.nodes):
                api = self.cluster.http(node)
                try:
                    call(api)
                except (ToolError, ClientError) as error:
                    if not (isinstance(error, BadStatus) and error.message in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")):
                        failures.append(str(error))
                finally:
                    api.close()
            self.reports.append("; ".join(failures) if failures else text)
            self.hurry()
            self.wake()

        threading.Thread(target=work, daemon=True).start()
