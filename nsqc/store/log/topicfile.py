"""nsqd.dat for tools: a topic's channels, and which of them are paused."""

from __future__ import annotations

import os

import msgspec

from nsqc import NSQD_VERSION
from nsqc.store.files import read_file, replace_file
from nsqc.wire.outside import Decoder, JSONError

FILE_NAME = "nsqd.dat"


class MetadataError(Exception):
    """nsqd.dat is malformed."""


class SavedChannel(msgspec.Struct):
    """A channel in nsqd.dat."""

    name: str
    paused: bool = False


class SavedTopic(msgspec.Struct):
    """A topic in nsqd.dat, which writes null for no channels."""

    name: str
    paused: bool = False
    channels: list[SavedChannel] | None = None


class Saved(msgspec.Struct):
    """nsqd.dat."""

    topics: list[SavedTopic] | None = None
    version: str = NSQD_VERSION


_decode = Decoder(Saved).decode
_decode_topic = Decoder(SavedTopic).decode


def read_saved(folder: str) -> Saved:
    """Empty if the file does not exist. Raises OSError or MetadataError."""
    path = os.path.join(folder, FILE_NAME)
    try:
        return _decode(read_file(path))
    except FileNotFoundError:
        return Saved()
    except JSONError as error:
        raise MetadataError(f"{path} is damaged - {error}") from None


def read_topic(path: str) -> SavedTopic:
    """Reads a file with one topic, as written by an export. Raises OSError or MetadataError."""
    try:
        return _decode_topic(read_file(path))
    except JSONError as error:
        raise MetadataError(f"{path} is damaged - {error}") from None


def saved_topic(folder: str, name: str) -> SavedTopic:
    """A topic, without channels if nsqd.dat lacks it. Raises OSError or MetadataError."""
    topics = read_saved(folder).topics or []
    return next((topic for topic in topics if topic.name == name), SavedTopic(name))


def merge_topic(folder: str, topic: SavedTopic) -> None:
    """Adds a topic and its channels. Raises OSError or MetadataError."""
    saved = read_saved(folder)
    known = saved_topic(folder, topic.name)
    names = {channel.name for channel in topic.channels or ()}
    channels = [*(topic.channels or ()), *(other for other in known.channels or () if other.name not in names)]
    merged = SavedTopic(topic.name, topic.paused or known.paused, channels or None)
    saved.topics = [*(other for other in saved.topics or () if other.name != topic.name), merged]
    replace_file(os.path.join(folder, FILE_NAME), msgspec.json.encode(saved))
