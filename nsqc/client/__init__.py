"""A blocking client for nsqd: producers, consumers, workers, and the connection below them; nsqc.client.aio is for
asyncio. See docs/client.md."""

from nsqc.client.commands import Batch
from nsqc.client.connection import Connection
from nsqc.client.consumer import Consumer
from nsqc.client.envelope import with_headers
from nsqc.client.errors import (
                                AuthError,
                                BadAddress,
                                BadMessage,
                                BadName,
                                BadTlsFile,
                                ClientError,
                                Closed,
                                ConnectError,
                                HandlersStuck,
                                HandlerTimeout,
                                LookupFailed,
                                NoAnswer,
                                PublishFailed,
                                Refused,
)
from nsqc.client.frames import Message
from nsqc.client.handling import GiveUp, json_handler
from nsqc.client.lookup import lookup, nodes
from nsqc.client.producer import Producer
from nsqc.client.tls import tls
from nsqc.client.worker import Worker

__all__ = [
    "AuthError", "BadAddress", "BadMessage", "BadName", "BadTlsFile", "Batch", "ClientError", "Closed", "ConnectError",
    "Connection", "Consumer", "GiveUp", "HandlerTimeout", "HandlersStuck", "LookupFailed", "Message", "NoAnswer",
    "Producer", "PublishFailed", "Refused", "Worker", "json_handler", "lookup", "nodes", "tls", "with_headers",
]
