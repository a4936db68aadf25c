"""The state of a disk queue, and the work of a sync. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memset

from nsqc.store.badfiles import bad_name
from nsqc.store.disk import names, positions
from nsqc.store.disk.segment cimport window_free
from nsqc.store.disk.unacked cimport unacked_count
from nsqc.store.disk.writebuf cimport forget_formers, out_free, spare_free


@cython.no_gc_clear     # __dealloc__ needs the prefix
cdef class QueueState(LoopWork):
    """Shared by the parts of a disk queue."""

    def __dealloc__(self):
        # No job is in progress: each holds a reference.
        forget_formers(&self.kept, &self.unacked)
        out_free(&self.kept)
        forget_formers(&self.out, &self.unacked)
        out_free(&self.out)
        spare_free(&self.spare)
        window_free(&self.window)
        window_free(&self.ahead.window)

    cpdef str path_of(self, int64_t number):
        """The path of a data file."""
        return names.path_of(self.folder, self.name, number)

    @property
    def meta_path(self) -> str:
        """The path of the positions file."""
        return names.path_of(self.folder, self.name, names.META)

    @property
    def write_path(self) -> str:
        """The path of the current write file."""
        return self.path_of(self.write_number)

    @property
    def dirty(self) -> bool:
        """Whether records wait in a buffer."""
        return buffered_records(self) > 0

    # ------------------------------------------------------------------ for the syncer

    def meta_text(self) -> bytes:
        """The contents of the positions file: buffered records do not count, and unfinished ones still wait."""
        cdef Place *oldest = self.unacked.oldest
        cdef int64_t depth = self.depth - buffered_records(self)
        if oldest is NULL:
            return positions.encode(depth, self.read_number, self.read_at, self.write_number, self.write_at)
        return positions.encode(depth + unacked_count(&self.unacked), oldest.number, oldest.at,
                                self.write_number, self.write_at)

    @property
    def rests(self) -> bool:
        """Whether it rests after a sync."""
        return False

    @property
    def needs_sync(self) -> bool:
        """Whether positions or data have changed since the last sync started."""
        return self.unsynced > 0 or bool(self.done_files) or not is_durable(self)

    def sync_began(self) -> tuple:
        """The work of a sync that starts now: (data to sync, whether the folder has new files, positions, files to
        remove). Data of the copies comes first: positions must not get ahead of it."""
        cdef Place *oldest = self.unacked.oldest
        cdef QueueState copy
        cdef list data = [], done
        cdef Py_ssize_t count = len(self.done_files)
        cdef bint folder = self.new_file
        for copy in self.copies:
            # Its own sync may be in progress, but end after this one, or fail.
            if not is_durable(copy) or copy.rewrite:
                data += data_to_sync(copy)
                folder = folder or copy.new_file or copy.syncing_folder
        data += data_to_sync(self)
        if oldest is not NULL:
            count = sum(1 for number in self.done_numbers if number < oldest.number)
        done = self.done_files[:count]
        del self.done_files[:count], self.done_numbers[:count]
        self.syncing_folder = self.new_file
        self.new_file = False
        self.syncing_number, self.syncing_at = self.write_number, self.write_at
        self.unsynced = 0
        self.sync_asked = False
        return data, folder, self.meta_text(), done

    def sync_succeeded(self):
        """The data that existed when the sync started is durable."""
        self.rewrite = self.syncing_folder = False
        if self.synced_number <= self.syncing_number:
            self.synced_number, self.synced_at = self.syncing_number, self.syncing_at

    def sync_failed(self, list done not None):
        """The work of a failed sync must be repeated, and its data rewritten first: after a failed fsync the kernel may
        mark pages clean that never reached the disk."""
        cdef QueueState copy
        self.rewrite = self.new_file = True
        self.done_files = done + self.done_files
        self.done_numbers = [-1] * len(done) + self.done_numbers
        self.unsynced += 1
        for copy in self.copies:
            if not copy.rewrite:
                copy.sync_failed([])
                copy.syncer.began(copy)

    def was_active(self) -> bool:
        """Whether it was read or written since the last call; for the idle check."""
        cdef bint was = self.active
        self.active = False
        return was


cdef bint is_durable(QueueState queue) noexcept:
    """Whether all written data has been synced; a sync in progress does not count."""
    return queue.synced_number == queue.write_number and queue.synced_at == queue.write_at


cdef list data_to_sync(QueueState queue):
    """(path, offset) of the files with data that may not be durable. A non-negative offset marks data that must be
    rewritten, since its sync has failed."""
    cdef int64_t number
    cdef list numbers = list(range(queue.synced_number, queue.write_number))
    if queue.write_at:
        numbers.append(queue.write_number)
    if not queue.rewrite:
        return [(queue.path_of(number), -1) for number in numbers]
    return [(queue.path_of(number), queue.synced_at if number == queue.synced_number else 0) for number in numbers]


# ---------------------------------------------------------------------- the read file

cdef void drop_block(QueueState queue) noexcept:
    window_free(&queue.window)
    queue.window.start = queue.window.limit = 0
    queue.block_end = -1


cdef void drop_ahead(QueueState queue) noexcept:
    window_free(&queue.ahead.window)
    memset(&queue.ahead, 0, sizeof(queue.ahead))


cdef int leave_file(QueueState queue) except -1:
    path = queue.path_of(queue.read_number)
    becomes = ""
    if queue.damaged_number == queue.read_number and not queue.damaged_linked:
        becomes = bad_name(path)
    queue.done_files.append((path, becomes))
    queue.done_numbers.append(queue.read_number)
    queue.read_number += 1
    queue.read_at = 0
    queue.complete = False
    drop_block(queue)
    queue.active = True
    queue.unsynced += 1
    if not queue.sync_asked:
        queue.sync_asked = True
        queue.syncer.start(queue)
    return 0
