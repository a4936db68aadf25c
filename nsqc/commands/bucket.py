"""`nsqc bucket`: lists, checks and removes the nodes in a bucket, and sets aside files of an earlier owner. Needs no
daemon."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Annotated

import typer

from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, fail, print_text

command = typer.Typer(help="List, check and remove the logs of nodes in a bucket.")

Uri = Annotated[str, typer.Argument(help="the bucket: s3://, gs://, az:// or file:///", metavar="URI")]


def age_text(time_ns: int) -> str:
    """Time since a commit, as people say it."""
    seconds = max(0, int(time.time() - time_ns / 1e9))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


@command.command("ls")
def ls_command(
    uri: Uri,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, one array with all nodes")] = False,
) -> int:
    """Print the nodes in a bucket, with their owners and contents.

    Examples: `nsqc bucket ls s3://acme-nsq/prod`, `nsqc bucket ls --json file:///srv/bucket`.
    """
    from nsqc.bucket.check import nodes_of, summary
    from nsqc.bucket.store import BucketError, open_bucket

    try:
        root = open_bucket(uri)
        found = [summary(root, node) for node in nodes_of(root)]
    except ValueError as error:
        return fail("bucket ls", str(error), EXIT_USAGE)
    except BucketError as error:
        return fail("bucket ls", f"{uri}: {error}")
    if as_json:
        print_text(json.dumps([node._asdict() for node in found], indent=2))
    for node in () if as_json else found:
        state = "stopped" if node.is_stopped else "last commit"
        print_text(f"{node.node}: {state} {age_text(node.time_ns)} by {node.host}, epoch {node.epoch}, commit "
                   f"{node.number}; {node.topics} topics, {node.messages:,} messages, {node.bytes:,} bytes")
    return 0


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
    from nsqc.bucket.store import BucketError, open_bucket

    faults = 0
    try:
        root = open_bucket(uri)
        for node in nodes or nodes_of(root):
            verdict = verify(root, node)
            for fault in verdict.faults:
                print_text(f"{node}: {fault}")
            for orphan in verdict.orphans:
                print_text(f"{node}: note: nothing names {orphan.name}, {orphan.size:,} bytes")
            for orphan in verdict.removable if remove_orphans else ():
                root.below(node).delete(orphan.name)
                print_text(f"{node}: removed {orphan.name}")
            found = len(verdict.faults)
            faults += found
            state = "ok" if not found else f"{found} fault{'' if found == 1 else 's'}"
            print_text(f"{node}: {state}, {verdict.summary.messages:,} messages")
    except ValueError as error:
        return fail("bucket verify", str(error), EXIT_USAGE)
    except BucketError as error:
        return fail("bucket verify", f"{uri}: {error}")
    return EXIT_REFUSED if faults else 0


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
    from nsqc.bucket.store import BucketError, open_bucket
    from nsqc.process.lifecycle import LockError, locked

    data_path = data_path.rstrip("/")
    aside = to or f"{data_path}.aside"
    try:
        with locked([data_path]):
            for found in unshipped(open_bucket(uri), node, data_path):
                print_text(f"{found.topic}: {found.messages:,} messages from offset {found.first} on were never "
                           "shipped")
            set_aside(data_path, aside)
    except ValueError as error:
        return fail("bucket adopt", str(error), EXIT_USAGE)
    except BucketError as error:
        return fail("bucket adopt", f"{uri}: {error}")
    except (LockError, OSError) as error:
        return fail("bucket adopt", str(error))
    print_text(f"{node}: its files are in {os.path.abspath(aside)}; the next start restores it from the bucket")
    return 0


@command.command("drop")
def drop_command(uri: Uri, node: Annotated[str, typer.Argument(help="the node", metavar="NODE")]) -> int:
    """Delete everything a node has in a bucket.

    Watches the node first, unless it was stopped, and refuses if it is alive. A daemon that is only paused meanwhile
    does not notice the removal. Example: `nsqc bucket drop s3://acme-nsq/prod nsqd-3`.
    """
    from nsqc.bucket.check import drop, nodes_of
    from nsqc.bucket.store import BucketError, open_bucket

    try:
        root = open_bucket(uri)
        if node not in nodes_of(root):
            return fail("bucket drop", f"{uri} has no node {node}")
        count = drop(root, node, say=lambda text: print(f"nsqc bucket drop: {text}", file=sys.stderr))
    except ValueError as error:
        return fail("bucket drop", str(error), EXIT_USAGE)
    except BucketError as error:
        return fail("bucket drop", f"{uri}: {error}")
    print_text(f"{node}: deleted {count:,} objects")
    return 0
