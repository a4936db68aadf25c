"""The command parser (nsqc.wire.parser and inbuf), driven from Python.

A CommandReader keeps an incomplete command as a connection does, so its results do not depend on how the input was cut.
"""

cimport cython

from nsqc.wire.parser cimport (MAX_ARGS, PARSE_BAD_COUNT, PARSE_BAD_MESSAGE_SIZE, PARSE_BAD_SIZE, PARSE_BODY,
                               PARSE_LINE, PARSE_LINE_TOO_LONG, PARSE_MESSAGE_TOO_BIG, PARSE_MORE, PARSE_OVERRUN,
                               PARSE_TOO_BIG, InBuf, Parser, command_has_body, inbuf_append, inbuf_drop, inbuf_free)

ERRORS = {
    PARSE_LINE_TOO_LONG: "line too long", PARSE_BAD_SIZE: "bad size", PARSE_TOO_BIG: "too big",
    PARSE_BAD_COUNT: "bad count", PARSE_BAD_MESSAGE_SIZE: "bad message size",
    PARSE_MESSAGE_TOO_BIG: "message too big", PARSE_OVERRUN: "overrun",
}


@cython.final
cdef class CommandReader:
    """Splits V2 input into commands.

    max_message, max_body: limits in bytes; max_message applies to PUB and DPUB, max_body to other bodies.
    """

    cdef Parser parser
    cdef InBuf inbuf
    cdef long max_message, max_body
    cdef readonly object failed     # why no more input can be parsed; None: no error

    def __init__(self, max_message: int = 1048576, max_body: int = 5242880):
        self.parser = Parser.new(max_message)
        self.max_message = max_message
        self.max_body = max_body

    def __dealloc__(self):
        inbuf_free(&self.inbuf)

    @property
    def kept(self) -> int:
        """Bytes of the incomplete command."""
        return self.inbuf.length

    def feed(self, bytes data not None) -> list:
        """The complete commands, each as (words, body or None); at most four words of a line are kept."""
        cdef list commands = []
        if self.failed is None:
            if inbuf_append(&self.inbuf, data, len(data)) < 0:
                raise MemoryError
            while self.inbuf.length and self.failed is None:
                if not self._next(commands):
                    break
        return commands

    def count(self, bytes data not None) -> int:
        """Counts the commands in data without creating objects for them."""
        cdef const char *c_at = data
        cdef const char *c_end = c_at + len(data)
        cdef int event
        cdef long number = 0
        while c_at < c_end:
            event = self.parser.next(c_at, c_end)
            if event == PARSE_LINE and command_has_body(self.parser.command.kind):
                self.parser.expect_body(self.max_body)
                continue
            if event != PARSE_LINE and event != PARSE_BODY:
                break
            number += 1
            c_at += self.parser.used
        return number

    cdef bint _next(self, list commands) except -1:
        cdef Parser parser = self.parser
        cdef int event = parser.next(self.inbuf.data, self.inbuf.data + self.inbuf.length)
        cdef bytes name
        if event == PARSE_MORE:
            return False
        if event in ERRORS:
            self.failed = ERRORS[event]
            return False
        if event == PARSE_LINE and command_has_body(parser.command.kind):
            name = parser.command.args[0][:parser.command.arg_bytes[0]]
            parser.expect_body(self.max_message if name in (b"PUB", b"DPUB") else self.max_body)
            return True
        words = [parser.command.args[at][:parser.command.arg_bytes[at]]
                 for at in range(min(parser.command.argc, MAX_ARGS))]
        body = None
        if event == PARSE_BODY:
            body = parser.command.body[:parser.used - (parser.command.body - self.inbuf.data)]
        commands.append((words, body))
        inbuf_drop(&self.inbuf, parser.used)
        return True
