"""The simplest server."""

import asyncio


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)
