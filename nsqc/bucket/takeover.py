"""Becoming the owner of a node: reading its chain, and claiming the next number.

A claim is a commit with a new writer id and the next epoch. It holds if nobody else created its number, and if no
checkpoint is newer than the one from which the chain was read. Before it is tried, `bucket.json` has it, durably: so a
later start on the same files recognizes the claim as its own, even one that seemed lost and landed later.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from nsqc.bucket.checkpoint import Head, Map, OtherChainError
from nsqc.bucket.commit import Commit, commit_name, decode_commit, encode_commit
from nsqc.bucket.reading import STARTS, follow, newest_checkpoint, read_chain
from nsqc.bucket.store import Bucket, BucketError, Missing, probe
from nsqc.store.files import read_file, replace_file
from nsqc.wire.outside import Decoder, JSONError

JOURNAL = "bucket.json"         # in the data path
WATCH_SECONDS = 25.0            # two and a half of an idle node's commits
LOOK_SECONDS = 1.0


class RefusedError(BucketError):
    """The node must not start here; the text says why, and what to do."""


# ====================================================================== bucket.json


class Claim(Struct, frozen=True):
    epoch: int
    writer: str


class Journal(Struct, omit_defaults=True):
    """What the files in a data path belong to: the last claim known to have landed, and all that were tried since."""

    path: str = ""              # not in the file
    cluster: str = ""
    node: str = ""
    claims: list[Claim] = []
    is_whole: bool = False      # the files have all that the bucket had at the last claim

    @classmethod
    def read(cls, data_path: str) -> Journal:
        """Raises RefusedError if it is damaged, and OSError."""
        path = os.path.join(data_path, JOURNAL)
        try:
            return msgspec.structs.replace(DECODER.decode(read_file(path)), path=path)
        except FileNotFoundError:
            return cls(path)
        except JSONError as error:
            raise RefusedError(f"{path}: {error}; set the data path aside to restore from the bucket") from error

    def belongs(self, cluster: str, node: str) -> None:
        """Raises RefusedError if the files are another node's."""
        if (self.cluster or cluster, self.node or node) != (cluster, node):
            raise RefusedError(f"{self.path}: these files belong to node {self.node} of cluster {self.cluster}, not to "
                               f"node {node} of cluster {cluster}; give their --node-name and --bucket, or, if that "
                               "bucket is lost, remove this file: they then begin a new node")
        self.cluster, self.node = cluster, node

    def knows(self, writer: str) -> bool:
        return any(claim.writer == writer for claim in self.claims)

    def tries(self, claim: Claim) -> None:
        """Durably, before the claim is tried."""
        self.claims.append(claim)
        self.write()

    def landed(self, claim: Claim, is_whole: bool) -> None:
        self.claims, self.is_whole = [claim], is_whole
        self.write()

    def restored(self) -> None:
        self.is_whole = True
        self.write()

    def write(self) -> None:
        replace_file(self.path, msgspec.json.encode(msgspec.structs.replace(self, path="")))


DECODER = Decoder(Journal)


# ====================================================================== the claim


class Owned(NamedTuple):
    """A node that is ours, as of the claim."""

    bucket: Bucket              # of the node
    whole: Map                  # the claim included
    base: int                   # number of the newest checkpoint; 0: none
    host: str
    had_files: bool             # that belong to it: no other node has owned it since
    since: float                # unix seconds, of the claim
    taken_from: str             # the host that had it; empty: none, or it had_files


def take_over(root: Bucket, node: str, journal: Journal, host: str, *, has_files: bool, force: bool = False,
              watch: float = WATCH_SECONDS, say: Callable[[str], object] = lambda text: None) -> Owned:
    """Makes this process the owner. Returns once the claim holds.

    has_files: the data path has logs. force: do not watch for a living owner. say: gets lines for people.
    Raises RefusedError, or another BucketError.
    """
    cluster = probe(root)
    journal.belongs(cluster, node)
    bucket = root.below(node)
    for _ in range(STARTS):
        whole, base = read_chain(bucket, cluster)
        own = journal.knows(whole.head.writer)
        if has_files and not own and whole.head.number:
            raise RefusedError(
                f"{host_of(whole.head)} took over node {node}, last heard of at {time_text(whole.head)}; the files "
                "here are of an earlier epoch, and stay untouched: `nsqc bucket adopt` sets them aside; the next start "
                "restores")
        if not (own or force or whole.head.is_stopped or whole.head.number == 0):
            say(f"watching node {node} of {host_of(whole.head)} for {watch:.0f} s")
            try:
                look(bucket, whole, node, watch)
            except (OtherChainError, Missing):
                continue
        claim, before = Claim(whole.head.epoch + 1, secrets.token_hex(16)), whole.head.host
        journal.tries(claim)
        if not put_claim(bucket, whole, claim, host):
            say("another node claimed the same number; starting over")
        elif newest_checkpoint(bucket) != base:
            say("a newer checkpoint appeared; starting over")
        else:
            had_files = has_files and own and journal.is_whole
            # Until everything is restored, a next start restores again.
            journal.landed(claim, is_whole=had_files)
            return Owned(bucket, whole, base, host, had_files, time.time(), "" if had_files else before)
    raise RefusedError(f"other nodes keep claiming node {node}; give each its own --node-name")


def look(bucket: Bucket, whole: Map, node: str, seconds: float) -> None:
    """Raises RefusedError if the chain grows meanwhile."""
    end = time.monotonic() + seconds
    while True:
        for commit in follow(bucket, whole):
            if not commit.is_stop:
                raise RefusedError(f"node {node} is alive on {commit.host}; stop it, use another --node-name, or take "
                                   "over with --bucket-take-over")
        left = end - time.monotonic()
        if left <= 0 or whole.head.is_stopped:
            return
        if bucket.stopping.wait(min(LOOK_SECONDS, left)):
            raise RefusedError("stopped before it could take over")


def put_claim(bucket: Bucket, whole: Map, claim: Claim, host: str) -> bool:
    """Whether the claim has the next number; the map then includes it."""
    head = whole.head
    commit = Commit(head.number + 1, head.cluster, claim.epoch, claim.writer, head.crc, time.time_ns(), host,
                    is_claim=True)
    data = encode_commit(commit)
    if bucket.create(commit_name(commit.number), data) is not None:
        return False
    whole.apply(*decode_commit(commit.number, data))
    return True


def host_of(head: Head) -> str:
    return head.host or "another machine"


def time_text(head: Head) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(head.time_ns / 1e9))
