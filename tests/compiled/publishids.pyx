"""The table of publish ids, with a clock that tests set."""

from libc.stdint cimport int64_t

from nsqc.store.publishids cimport PublishId, PublishIds


cdef class Ids:
    """PublishIds with times in seconds, one commit at a time."""

    cdef readonly PublishIds table
    cdef int64_t serial

    def __init__(self, double window, int64_t limit):
        self.table = PublishIds(<int64_t> (window * 1e9), limit, b"k" * 16)
        self.serial = 1

    def claim(self, bytes id not None, double now) -> tuple:
        """(IdVerdict, number)."""
        cdef PublishId hashed
        cdef int64_t number = 0
        self.table.hash(id, len(id), &hashed)
        verdict = self.table.claim(&hashed, <int64_t> (now * 1e9), self.serial, &number)
        return verdict, number

    def keep(self, int64_t number):
        self.table.keep(number)

    def collect(self, int64_t number):
        self.table.keep_if_collected(number, self.serial)

    def release(self, int64_t number):
        self.table.release(number)

    def begin(self):
        self.serial += 1
        self.table.commit_began()

    def end(self, int error):
        self.table.commit_ended(error)

    def expire(self, double now, int64_t most) -> bool:
        return self.table.expire(<int64_t> (now * 1e9), most)

    def memory(self) -> int:
        return self.table.memory()

    @property
    def length(self) -> int:
        """Size of the ring, in entries."""
        return self.table.next - self.table.first
