"""The input of an archive job: the topic's log by offset, or a channel.

An archive never changes its input: its checkpoint fits nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from nsqc.spark.jobs import checkpoints, logs, nodes
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.running import JobError

CHANNEL = "archive"
IN_FLIGHT, IDLE_SECONDS = 2500, 2.0
# Messages stay in the log, so an absent node is waited for indefinitely.
PATIENCE_SECONDS, FOREVER_SECONDS = 300, 10_000_000


def log_before(archive: Path) -> bool | None:
    """Whether an archive was read from a log so far; None: it is new. Raises JobError."""
    state = archive / "_state"
    if (state / "staging" / "log.json").exists():
        return False
    if (state / "checkpoint" / "offsets").is_dir():
        known = checkpoints.read(state / "checkpoint")
        if known.batch is not None:
            return not known.consumes
    return None


def from_log(archive: Path, cluster: Cluster, topic: str, channel: str | None, note: Callable[[str], None]) -> bool:
    """Whether to read the log of the topic. Raises JobError if that is impossible or unclear."""
    before = log_before(archive)
    if before and channel is not None:
        raise JobError(f"{archive} was read from the log of {topic} by offset: omit --channel, or archive into "
                       "another folder")
    if before is not None or channel is not None:
        return bool(before)
    try:
        with nodes.found(cluster, note) as (apis, _):
            having = {name: api for name, api in apis.items() if topic in api.topics()} or apis
            kinds = {name: "log" if api.rule(topic).log else "memory" for name, api in having.items()}
    except JobError as error:
        if cluster.http and "nsqd" in cluster.options and "tls" not in cluster.options:
            raise
        note(f"cannot determine whether topic {topic} is log-backed; consuming its channel {CHANNEL}: {error}")
        return False
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise JobError(f"topic {topic} is log-backed on only some nsqd ({shown}): set one rule on all of them (PUT "
                       f"/topic/rules), or consume it by --channel {CHANNEL}")
    return set(kinds.values()) == {"log"}


def of_channel(cluster: Cluster, topic: str, channel: str | None, until_idle: bool, idle: float | None,
               max_in_flight: int | None) -> dict[str, str]:
    """The options of a consuming source."""
    return {**cluster.options, "topic": topic, "channel": channel or CHANNEL,
            "maxInFlight": str(max_in_flight or IN_FLIGHT),
            "idleMs": str(round((IDLE_SECONDS if idle is None else idle) * 1000)),
            "failWhenUnreachable": str(PATIENCE_SECONDS) if until_idle else "0"}


def of_log(archive: Path, cluster: Cluster, topic: str, until_idle: bool, idle: float | None,
           max_in_flight: int | None, note: Callable[[str], None]) -> dict[str, str]:
    """The options of a source that reads the log, after checking it. Raises JobError, typer.BadParameter."""
    for name, value in (("--idle", idle), ("--max-in-flight", max_in_flight)):
        if value is not None:
            raise typer.BadParameter(f"{name} is for consuming a channel; topic {topic} is log-backed and read by "
                                     "offset")
    source = logs.source(cluster, [topic])
    if cluster.create:
        create(cluster, topic, note)
    all_nodes = ("--until-idle needs all nsqd" if until_idle else
                 "the first run needs all nsqd" if log_before(archive) is None else "")
    logs.look(cluster, [topic], note, all_nodes)
    with nodes.found(cluster, lambda text: None) as (apis, _):
        if not all(api.rule(topic).stays for api in apis.values()):
            note(f"topic {topic} has no retain_time: messages finished by all channels may be removed before they are "
                 "archived")
    return {**source, "startingOffsets": "earliest",
            "failWhenUnreachable": str(PATIENCE_SECONDS if until_idle else FOREVER_SECONDS)}


def create(cluster: Cluster, topic: str, note: Callable[[str], None]) -> None:
    """Creates the topic on all nodes, if none has it. Raises JobError."""
    with nodes.found(cluster, note) as (apis, _):
        if not any(topic in api.topics() for api in apis.values()):
            for api in apis.values():
                api.create(topic)
