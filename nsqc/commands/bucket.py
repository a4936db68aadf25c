"""`nsqc bucket`: lists, checks and removes the nodes in a bucket, and sets aside files of an earlier owner. Needs no
daemon."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, fail, print_text

if TYPE_CHECKING:
    from nsqc.bucket.store import Bucket

command = typer.Typer(help="List, check and remove the logs of nodes in a bucket.")

Uri = Annotated[str, typer.Argument(help="the bucket: s3://, gs://, az:// or file:///", metavar="URI")]


def age_text(time_ns: int) -> str:
    """Time since a commit, as people say it."""
    seconds = int(time.time() - time_ns / 1e9)
    if seconds < -60:
        return "in the future, by its clock,"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{max(0, seconds)}s ago"


def answered(words: str, uri: str, call: Callable[[Bucket], int]) -> int:
    """The exit code of a call, or of what it raises."""
    from nsqc.bucket.store import BucketError, open_bucket

    try:
        return call(open_bucket(uri))
    except ValueError as error:
        return fail(words, str(error), EXIT_USAGE)
    except BucketError as error:
        return fail(words, f"{uri}: {error}")


@command.command("ls")
def ls_command(
    uri: Uri,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, one array with all nodes")] = False,
) -> int:
    """Print the nodes in a bucket, with their owners and contents.

    Examples: `nsqc bucket ls s3://acme-nsq/prod`, `nsqc bucket ls --json file:///srv/bucket`.
    """
    from nsqc.bucket.check import nodes_of, summary
    from nsqc.bucket.store import BucketError

    def show(root: Bucket) -> int:
        code, found = 0, []
        for name in nodes_of(root):
            try:
                found.append(summary(root, name))
            except BucketError as error:
                code = fail("bucket ls", f"{name}: {error}")
        if as_json:
            print_text(json.dumps([node._asdict() for node in found], indent=2))
        for node in () if as_json else found:
            state = "stopped" if node.is_stopped else "last commit"
            print_text(f"{node.node}: {state} {age_text(node.time_ns)} by {node.host}, epoch {node.epoch}, commit "
                       f"{node.number}; {node.topics} topics, {node.messages:,} messages, {node.bytes:,} bytes")
        return code

    return answered("bucket ls", uri, show)


@command.command("verify")
def verify_command(
    uri: Uri,
    nodes: Annotated[list[str] | None, typer.Argument(help="the nodes; default: all", metavar="NODE...")] = None,
    remove_orphans: Annotated[bool, typer.Option("--remove-orphans", help="remove those a week older than the newest "
                                                 "commit")] = False,
) -> int:
    """Check every message in a bucket, and look for objects that nothing names.

    Prints faults and orphans; the exit code is 1 if there are faults. Orphans are what a crash leaves; they only cost
    money. It can run beside a node. Example: `nsqc bucket verify s3://acme-nsq/prod nsqd-3`.
    """
    from nsqc.bucket.check import nodes_of, verify
    from nsqc.bucket.store import BucketError

    def look(root: Bucket, node: str) -> bool:
        """Whether it has no fault."""
        try:
            verdict = verify(root, node)
        except BucketError as error:
            print_text(f"{node}: {error}")
            return False
        for fault in verdict.faults:
            print_text(f"{node}: {fault}")
        for orphan in verdict.orphans:
            print_text(f"{node}: note: nothing names {orphan.name}, {orphan.size:,} bytes")
        for orphan in verdict.removable if remove_orphans else ():
            root.below(node).delete(orphan.name)
            print_text(f"{node}: removed {orphan.name}")
        found = len(verdict.faults)
        state = "ok" if not found else f"{found} fault{'' if found == 1 else 's'}"
        print_text(f"{node}: {state}, {verdict.summary.messages:,} messages")
        return not found

    def look_all(root: Bucket) -> int:
        return EXIT_REFUSED if [node for node in nodes or nodes_of(root) if not look(root, node)] else 0

    return answered("bucket verify", uri, look_all)


@command.command("adopt")
def adopt_command(
    uri: Uri,
    node: Annotated[str, typer.Argument(help="the node", metavar="NODE")],
    data_path: Annotated[str, typer.Option("--data-path", help="the folder of the node that was replaced",
                                           metavar="DIR")],
    to: Annotated[str, typer.Option("--to", help="where its files go; default: DIR.aside", metavar="DIR")] = "",
) -> int:
    """Set aside the files of a node that was replaced, so that it can start again from the bucket.

    Lists the messages that were never shipped; they are in the files set aside, where `nsqc log inspect` and a daemon
    without --bucket read them. Example: `nsqc bucket adopt s3://acme-nsq/prod nsqd-3 --data-path /var/lib/nsqc`.
    """
    from nsqc.bucket.check import set_aside, unshipped
    from nsqc.process.lifecycle import LockError, locked

    data_path = data_path.rstrip("/")
    aside = to or f"{data_path}.aside"

    def adopt(root: Bucket) -> int:
        try:
            with locked([data_path]):
                for found in unshipped(root, node, data_path):
                    print_text(f"{found.topic}: {found.messages:,} messages from offset {found.first} on were never "
                               "shipped")
                set_aside(data_path, aside)
        except (LockError, OSError) as error:
            return fail("bucket adopt", str(error))
        print_text(f"{node}: its files are in {os.path.abspath(aside)}; the next start restores it from the bucket")
        return 0

    return answered("bucket adopt", uri, adopt)


@command.command("drop")
def drop_command(uri: Uri, node: Annotated[str, typer.Argument(help="the node", metavar="NODE")]) -> int:
    """Delete everything a node has in a bucket.

    Watches the node first, unless it was stopped, and refuses if it is alive. A daemon that was only paused meanwhile
    ships nothing more. Example: `nsqc bucket drop s3://acme-nsq/prod nsqd-3`.
    """
    from nsqc.bucket.check import drop, nodes_of

    def remove(root: Bucket) -> int:
        if node not in nodes_of(root):
            return fail("bucket drop", f"{uri} has no node {node}")
        count = drop(root, node, say=lambda text: print(f"nsqc bucket drop: {text}", file=sys.stderr))
        print_text(f"{node}: deleted {count:,} objects")
        return 0

    return answered("bucket drop", uri, remove)
