"""A blocking client of nsqd: producers, consumers, and the connection below them. See docs/client.md."""

from nsqc.client.connection import Batch, Connection
from nsqc.client.consumer import Consumer
from nsqc.client.errors import (
    AuthError,
    BadMessage,
    BadName,
    ClientError,
    Closed,
    ConnectError,
    LookupFailed,
    NoAnswer,
    Refused,
)
from nsqc.client.lookup import lookup, nodes
from nsqc.client.message import Message
from nsqc.client.producer import Producer, PublishFailed
from nsqc.client.tls import tls

__all__ = [
    "AuthError", "BadMessage", "BadName", "Batch", "ClientError", "Closed", "ConnectError", "Connection", "Consumer",
    "LookupFailed", "Message", "NoAnswer", "Producer", "PublishFailed", "Refused", "lookup", "nodes", "tls",
]
