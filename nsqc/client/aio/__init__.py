"""The asyncio client: a Producer, a Consumer and a Worker with the options, errors and messages of nsqc.client, for any
event loop. See docs/client.md."""

from nsqc.client.aio.consumer import Consumer
from nsqc.client.aio.producer import Producer
from nsqc.client.aio.worker import Worker

__all__ = ["Consumer", "Producer", "Worker"]
