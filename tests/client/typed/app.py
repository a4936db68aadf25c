"""An application as type checkers see it; the comment on each reveal_type has the expected type. Never run."""

import asyncio
import ssl
from typing import reveal_type

from nsqc.client import (
    AuthError,
    BadMessage,
    ClientError,
    Connection,
    Consumer,
    GiveUp,
    Message,
    Producer,
    PublishFailed,
    Refused,
    Worker,
    aio,
    json_handler,
    lookup,
    tls,
)
from nsqc.testing import Daemon, running


def blocking() -> None:
    with Producer(["127.0.0.1:4150"], retries=1, tls=tls(verify=False), deflate=3) as producer:
        reveal_type(producer)  # Producer
        reveal_type(producer.publish("t", b"x"))  # None
        producer.publish("t", bytearray(b"x"))
        producer.publish_many("t", (memoryview(b"%d" % n) for n in range(3)), batch_rows=10)
        producer.publish_deferred("t", b"x", delay_ms=5)
    with Consumer("t", "c", nsqlookupd="127.0.0.1:4161", max_in_flight=5, auth_secret=b"x") as consumer:
        for message in consumer:
            reveal_type(message)  # Message
            reveal_type(message.body)  # bytes
            reveal_type(message.id)  # bytes
            reveal_type(message.timestamp_ns)  # int
            reveal_type(message.attempts)  # int
            reveal_type(message.answered)  # bool
            with message as same:
                reveal_type(same)  # Message
                same.touch()
        reveal_type(consumer.get(1.5))  # Message | None
    with Connection("127.0.0.1:4150", tick_ns=1000) as connection:
        reveal_type(connection)  # Connection
        reveal_type(connection.receive(1))  # list[Message]
        batch = connection.receive_batch(timeout=None)
        reveal_type(batch)  # Batch | None
        if batch is not None:
            with batch:
                reveal_type(batch.count)  # int
                reveal_type(batch.bodies)  # Chunk
                reveal_type(memoryview(batch.offsets).cast("B").cast("i")[0])  # int
                reveal_type(bytes(batch.ids))  # bytes
                connection.finish_ids(batch.ids)
        reveal_type(connection.failed_ids)  # list[bytes]
    reveal_type(lookup("t", ["127.0.0.1:4161"]))  # list[str]
    reveal_type(tls())  # SSLContext


def workers() -> None:
    worker = Worker("t", "c", "127.0.0.1:4150", concurrency=2, max_attempts=5, tls=True, max_in_flight=None)

    @worker
    def handle(message: Message) -> None:
        reveal_type(message.body)  # bytes

    @json_handler
    def handle_json(value: dict[str, int], message: Message) -> None:
        raise GiveUp(str(value["amount"]))
    reveal_type(worker.run())  # None
    reveal_type(worker.stats().given_up)  # int
    reveal_type(worker.stats().consumer.connections[0].ready)  # int
    with Producer(nsqlookupd="127.0.0.1:4161", spread=True, poll_interval=5) as producer:
        reveal_type(producer.ping())  # float
        reveal_type(producer.stats().down)  # dict[str, str]
        producer.connect()


async def workers_of_asyncio() -> None:
    async def handle(message: Message) -> None:
        reveal_type(message.attempts)  # int
    worker = aio.Worker("t", "c", nsqlookupd="127.0.0.1:4161", handler=handle)
    reveal_type(await worker.run())  # None
    with Daemon("--mem-queue-size=0") as daemon, running(worker) as same:
        reveal_type(daemon.address)  # str
        reveal_type(same)  # Worker


def errors() -> None:
    try:
        blocking()
    except PublishFailed as error:
        reveal_type(error.unsent)  # int
    except BadMessage as error:
        reveal_type(error.index)  # int
    except AuthError as error:
        reveal_type(error.code)  # str
    except Refused as error:
        reveal_type(error.address)  # str
    except ClientError as error:
        reveal_type(error)  # ClientError


async def asynchronous() -> None:
    async with aio.Producer("127.0.0.1:4150", snappy=True) as producer:
        reveal_type(producer)  # Producer
        reveal_type(await producer.publish("t", b"x"))  # None
        await asyncio.gather(*(producer.publish("t", b"x") for _ in range(3)))
        await producer.publish_many("t", [b"x"], window=2)
    async with aio.Consumer("t", "c", ["127.0.0.1:4150"], max_in_flight=10, tls=ssl.create_default_context()) as consumer:
        async for message in consumer:
            reveal_type(message)  # Message
            with message:
                message.requeue(100)
        reveal_type(await consumer.get(timeout=1))  # Message | None


def wrong() -> None:
    """The ignored errors are real; strict mode reports an ignore without an error."""
    Producer("127.0.0.1:4150", tlss=True)  # type: ignore[call-arg]
    Producer("127.0.0.1:4150", timeout="1")  # type: ignore[arg-type]
    Consumer("t", "c", "127.0.0.1:4150", deflate="9")  # type: ignore[arg-type]
    aio.Producer("127.0.0.1:4150", tlss=True)  # type: ignore[call-arg]
    Connection("127.0.0.1:4150", retries=1)  # type: ignore[call-arg]
    Producer().publish("t", "text")  # type: ignore[arg-type]
    Producer().publish_many("t", ["text"])  # type: ignore[list-item]
    Consumer("t", "c").get("1")  # type: ignore[arg-type]
