# Files of the store: system calls, new files, names, and the threads that run file jobs.

from libc.stdint cimport int64_t

from nsqc.store.work cimport Job, LoopWork


# ====================================================================== system calls
# System calls on files: interrupted calls and partial transfers are continued. Results are errno or -errno as noted.
# All may be called on worker threads, without the GIL.

# Writes all bytes at an offset; 0 or errno. written: bytes actually written.
cdef int io_write(int fd, const char *c_from, int64_t length, int64_t at, int64_t *written) noexcept nogil
# Reads up to room bytes at an offset; returns the count, fewer only at the end of the file; or -errno.
cdef int64_t io_read(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil
cdef int io_open(const char *c_path, int flags) noexcept nogil      # descriptor, or -errno
cdef int64_t io_size(int fd) noexcept nogil                         # bytes, or -errno
# The same from the page cache only: -EAGAIN if it lacks some of that data, or if the file system cannot
# tell.
cdef int64_t io_read_cached(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil
# Whether a write at this offset needs no read: for blocks that it fills partially, the page cache has the rest.
# Otherwise the write may wait for a busy disk. Also True if the file system cannot tell.
cdef bint io_write_ready(int fd, int64_t at) noexcept nogil
cdef int io_truncate(int fd, int64_t size) noexcept nogil           # 0 or errno
cdef int io_sync_data(int fd) noexcept nogil                        # fdatasync: 0 or errno
cdef int io_sync_path(const char *c_path, int flags) noexcept nogil     # 0 or errno
# Writes the data of a file from a position on again, then syncs it: after a failed fsync, the kernel may consider pages
# clean that never reached the disk. 0 or errno.
cdef int io_sync_again(const char *c_path, int64_t position) noexcept nogil
cdef int io_rename(const char *c_from, const char *c_to) noexcept nogil     # 0 or errno
cdef int io_unlink(const char *c_path) noexcept nogil               # 0 or errno


# ====================================================================== new files
# Creates files atomically: written under a temporary name, then renamed. A folder with either name is kept as NAME.bad,
# since it would block publishing; anything else is replaced.

# Writes a whole file; its descriptor or -errno. syncs: its bytes are durable before it gets its name.
cdef int newfile_make(const char *c_temporary, const char *c_path, const char *c_data, int64_t length,
                      bint syncs) noexcept nogil


# ====================================================================== open files
# Descriptors of segments and journals that logs keep open between uses. Counted across threads; above the limit, each
# is closed after use.

cdef void count_open(int64_t count) noexcept nogil
cdef bint too_many_open() noexcept nogil
cdef void close_counted(int *fd) noexcept nogil     # if it is open; sets it to -1


# ====================================================================== names
# File names of a disk queue; only this module builds and parses them. A queue is TOPIC or TOPIC:CHANNEL.
#
#   QUEUE.diskqueue.NNNNNN.dat              messages; the number has 6 to 17 digits
#   QUEUE.diskqueue.meta.dat                positions
#   QUEUE.diskqueue.meta.dat.PID-N.tmp      positions being written
#   QUEUE.diskqueue.X.dat.retired-PID-N     removal started by an earlier version

cdef enum:
    PATH_BYTES = 4500           # longest path of a data file, terminator included
    MAX_NUMBER_BYTES = 24       # of that, for the part after the prefix

# The path of a data file. c_prefix: prefix_of() its queue; c_path: room for PATH_BYTES.
cdef void path_store(char *c_path, const char *c_prefix, int64_t number) noexcept nogil


# ====================================================================== pool
# File I/O off the loop: jobs in C, run by threads without the GIL, and collected by the loop.
#
# A job is one allocation. submit() hands it to a thread; when it is done, the loop calls its owner's job_done(), which
# then owns and frees it. Meanwhile the pool holds a reference to the owner.
#
# A short job (a small write to the page cache) runs within submit() while the disk keeps up: handing it to a thread and
# back would cost several times as much as the job. It goes to a thread while the kernel has so much to write back that
# it may block writers, for FIRST_NS after a job was slow (twice as long after each further one, until many in a row
# were quick), and when short jobs have taken HERE_NS of the last BURST_NS.
#
# A pool without threads runs jobs, and job_done(), within submit(): for tools, tests and the end of a shutdown.

cdef enum:                      # for creators of jobs
    SHORT_BYTES = 262144        # a write up to this size, about one read of input, is short if the page cache takes it
    QUIET_NS = 1000000000       # after a write, the page cache keeps the data for the next one for at least this long


cdef class IoPool:
    cdef readonly int threads           # at most; 0: jobs run at once
    cdef readonly int64_t under_way     # jobs submitted and not yet collected
    cdef int64_t quick                  # consecutive quick short jobs
    cdef int64_t trusted_ns             # monotonic: until then short jobs go to threads
    cdef int64_t distrust_ns            # length of that period after the next slow job
    cdef int vmstat                     # descriptor of /proc/vmstat; -1: not open
    cdef readonly bint crowded          # the kernel has so much to write back that it may block writers
    cdef int64_t window_ns              # monotonic: start of the current window
    cdef int64_t bytes_before           # written in the previous window
    cdef int64_t bytes_now
    cdef int64_t burst_ns               # monotonic: start of counting spent_ns
    cdef int64_t spent_ns               # within submit()
    cdef object loop
    cdef object watching                # the descriptor watched by the loop; None: none
    cdef void *c_state                  # owned: State, shared by the threads

    # Takes ownership of the job. Runs it at once if no thread can be started.
    cdef void submit(self, Job *job, LoopWork owner) noexcept

    # Whether submit() would run a short job.
    cdef inline bint runs_here(self, Job *job) noexcept:
        return self.threads == 0 or (job.is_short and self._may_run_here())

    cdef bint _may_run_here(self) noexcept
    cdef void _count_bytes(self, Job *job) noexcept
    cdef void _judge(self, Job *job) noexcept
    cdef bint _opened(self) noexcept
    cdef void _finish(self, Job *job) noexcept
    cdef void _no_thread(self) noexcept
    cdef void _put_back(self, Job *job) noexcept
