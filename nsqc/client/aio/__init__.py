"""The asyncio client: a Producer and a Consumer with the options, errors and messages of nsqc.client, for any event
loop. See docs/client.md."""

from nsqc.client.aio.consumer import Consumer
from nsqc.client.aio.producer import Producer

__all__ = ["Consumer", "Producer"]
