"""Origins of dead letters. See the .pxd."""

import msgspec

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.consumer cimport Consumer
from nsqc.store.delivery cimport Delivery
from nsqc.store.log.frame cimport MOST_ORIGIN

cdef enum:
    MOST_CLIENTS = 1024         # remembered per channel
    MOST_CHARS = 96             # of a text chosen by clients or operators
    TAIL_BYTES = 160            # most bytes of an origin without its head and its client

cdef bytes NOBODY = b"null"


def origin_node(str address not None, int64_t node_id):
    """See the .pyi."""
    return b'"node":%s,"node_id":%d' % (_text(address), node_id)


def _text(str text not None):
    """A text as JSON, shortened if necessary."""
    return msgspec.json.encode(text[:MOST_CHARS].encode("utf-8", "replace").decode())


cdef bytes origin_head(ChannelState channel, bytes topic, bytes node):
    return b'{"topic":"%s","channel":"%s",%s' % (topic, channel.name, node)


cdef uint32_t origin_store(char *c_to, ChannelState channel, const Delivery *delivery, bytes head) noexcept:
    cdef bytes client = NOBODY
    cdef int64_t length = PyBytes_GET_SIZE(head)
    if channel.last_clients is not None and delivery.reason != DEAD_ATTEMPTS:
        client = channel.last_clients.get(delivery.delivered_ns, NOBODY)
    if length + PyBytes_GET_SIZE(client) + TAIL_BYTES > MOST_ORIGIN:
        client = NOBODY
    memcpy(c_to, PyBytes_AS_STRING(head), <size_t> length)
    return <uint32_t> (length + snprintf(
        c_to + length, <size_t> (MOST_ORIGIN - length),
        b",\"id\":\"%.16s\",\"timestamp\":%lld,\"attempts\":%u,\"reason\":\"%s\",\"client\":%s}",
        delivery.message.id, <long long> delivery.message.timestamp_ns, <unsigned> delivery.attempts,
        reason_text(delivery.reason), PyBytes_AS_STRING(client)))


cdef const char *reason_text(int reason) noexcept:
    if reason == DEAD_REQUEUED:
        return b"requeued"
    if reason == DEAD_TIMED_OUT:
        return b"timed_out"
    if reason == DEAD_EXPIRED or reason == DEAD_OVERFLOWED:
        return b"expired" if reason == DEAD_EXPIRED else b"overflow"
    return b"disconnected" if reason == DEAD_DISCONNECTED else b"attempts"


cdef void origin_client(ChannelState channel, object consumer, int64_t owner) noexcept:
    try:
        if channel.last_clients is None or len(channel.last_clients) >= MOST_CLIENTS:
            channel.last_clients = {}
        if owner not in channel.last_clients:
            stats = (<Consumer?> consumer).stats()
            channel.last_clients[owner] = b'{"client_id":%s,"hostname":%s,"remote_address":%s}' % (
                _text(stats.client_id), _text(stats.hostname), _text(stats.remote_address))
    except Exception:
        return      # no memory: the origins of its messages lack the client
