"""Files of the store: system calls, new files, names, and the threads that run file jobs. See the .pxd."""

import itertools
import os
import re
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport (EAGAIN, EEXIST, EINTR, EINVAL, EIO, EISDIR, ENOMEM, ENOSYS, ENOTDIR, ENOTEMPTY, EOPNOTSUPP,
                         errno)
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport rename, snprintf
from libc.stdlib cimport atoll, calloc, free, malloc
from libc.string cimport strlen, strstr
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_EXCL, O_NONBLOCK, O_RDONLY, O_RDWR, open
from posix.stat cimport fstat, struct_stat
from posix.time cimport nanosleep, timespec
from posix.unistd cimport close, fdatasync, fsync, ftruncate, pread, pwrite, read, unlink, write

from nsqc.loop.uv cimport span_over
from nsqc.store.memory cimport monotonic_ns


# ====================================================================== system calls
# System calls on files, and the single hook through which tests make a disk fail.
#
# fail() and delay() simulate faults that a test cannot provoke on a real file system: a failing fsync, a slow disk.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <sys/uio.h>
    #include <sys/types.h>

    /* From the page cache only: RWF_NOWAIT, unknown to older C libraries. */
    extern ssize_t preadv2(int, const struct iovec *, int, off_t, int);
    static ssize_t nsqc_read_cached(int fd, char *to, size_t room, off_t at) {
        struct iovec part = {to, room};
        return preadv2(fd, &part, 1, at, 8);
    }
    """
    ssize_t nsqc_read_cached(int fd, char *c_to, size_t room, int64_t at) nogil

cdef extern from *:
    """
    /* Takes one of the remaining ones, if any; called concurrently. */
    static int nsqc_take_one(int64_t *left) {
        int64_t now = __atomic_load_n(left, __ATOMIC_RELAXED);
        while (now > 0)
            if (__atomic_compare_exchange_n(left, &now, now - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                return 1;
        return 0;
    }
    """
    bint nsqc_take_one(int64_t *left) nogil

cdef enum:
    PAGE_BYTES = 4096
    AGAIN_BYTES = 1048576       # of one read and write of io_sync_again()

cdef enum Call:
    READ
    WRITE
    SYNC
    RENAME

cdef struct Fault:
    int error           # errno to fail with
    int64_t skip        # calls that still succeed
    int64_t times       # calls that fail after those

cdef Fault[4] faults
cdef int64_t[4] delays      # nanoseconds
cdef dict CALLS = {"read": READ, "write": WRITE, "sync": SYNC, "rename": RENAME}


cdef int fault_of(Call call) noexcept nogil:
    """The errno requested by a test; otherwise 0."""
    cdef timespec pause
    if delays[<int> call]:
        pause.tv_sec = delays[<int> call] // 1000000000
        pause.tv_nsec = delays[<int> call] % 1000000000
        nanosleep(&pause, NULL)
    if faults[<int> call].times == 0 or nsqc_take_one(&faults[<int> call].skip):
        return 0
    return faults[<int> call].error if nsqc_take_one(&faults[<int> call].times) else 0


cdef int io_write(int fd, const char *c_from, int64_t length, int64_t at, int64_t *written) noexcept nogil:
    cdef ssize_t done
    cdef int error = fault_of(WRITE)
    written[0] = 0
    if error:
        return error
    while length > 0:
        done = pwrite(fd, c_from, <size_t> length, at)
        if done < 0:
            if errno == EINTR:
                continue
            return errno
        if done == 0:
            return EIO
        c_from += done
        at += done
        length -= done
        written[0] += done
    return 0


cdef int64_t io_read(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil:
    cdef ssize_t got
    cdef int64_t done = 0
    cdef int error = fault_of(READ)
    if error:
        return -error
    while done < room:
        got = pread(fd, c_to + done, <size_t> (room - done), at + done)
        if got < 0:
            if errno == EINTR:
                continue
            return -errno
        if got == 0:
            break
        done += got
    return done


cdef int64_t io_read_cached(int fd, char *c_to, int64_t room, int64_t at) noexcept nogil:
    cdef ssize_t got
    cdef int error
    if delays[<int> READ]:
        return -EAGAIN
    error = fault_of(READ)
    if error:
        return -error
    got = nsqc_read_cached(fd, c_to, <size_t> room, at)
    if got < 0:
        return -EAGAIN if errno in (EINTR, EOPNOTSUPP, ENOSYS, EINVAL) else -errno
    return got if got == room else -EAGAIN


cdef bint io_write_ready(int fd, int64_t at) noexcept nogil:
    cdef char last
    return at % PAGE_BYTES == 0 or nsqc_read_cached(fd, &last, 1, at - 1) >= 0 or errno != EAGAIN


cdef int io_open(const char *c_path, int flags) noexcept nogil:
    cdef int fd
    while True:
        # Non-blocking: something other than a file may have that name.
        fd = open(c_path, flags | O_CLOEXEC | O_NONBLOCK, <int> 0o600)
        if fd >= 0:
            return fd
        if errno != EINTR:
            return -errno


cdef int64_t io_size(int fd) noexcept nogil:
    cdef struct_stat status
    if fstat(fd, &status) < 0:
        return -errno
    return status.st_size


cdef int io_truncate(int fd, int64_t size) noexcept nogil:
    return errno if ftruncate(fd, size) < 0 else 0


cdef int io_sync(int fd) noexcept nogil:
    """0 or errno."""
    cdef int error = fault_of(SYNC)
    if error:
        return error
    return errno if fsync(fd) < 0 else 0


cdef int io_sync_data(int fd) noexcept nogil:
    cdef int error = fault_of(SYNC)
    if error:
        return error
    return errno if fdatasync(fd) < 0 else 0


cdef int io_sync_path(const char *c_path, int flags) noexcept nogil:
    cdef int error
    cdef int fd = io_open(c_path, flags)
    if fd < 0:
        return -fd
    error = io_sync(fd)
    close(fd)
    return error


cdef int io_sync_again(const char *c_path, int64_t position) noexcept nogil:
    cdef char *c_data = <char *> malloc(AGAIN_BYTES)
    cdef int fd = io_open(c_path, O_RDWR), error = 0
    cdef int64_t got = 1, written
    if fd < 0 or c_data is NULL:
        error = -fd if fd < 0 else ENOMEM
    while error == 0 and got > 0:
        got = io_read(fd, c_data, AGAIN_BYTES, position)
        error = <int> -got if got < 0 else io_write(fd, c_data, got, position, &written)
        position += max(got, <int64_t> 0)
    if error == 0:
        error = io_sync(fd)
    free(c_data)
    if fd >= 0:
        close(fd)
    return error


cdef int io_rename(const char *c_from, const char *c_to) noexcept nogil:
    cdef int error = fault_of(RENAME)
    if error:
        return error
    return errno if rename(c_from, c_to) < 0 else 0


cdef int io_unlink(const char *c_path) noexcept nogil:
    return errno if unlink(c_path) < 0 else 0


def sync_file(int descriptor):
    """fsync. Raises OSError."""
    cdef int error
    with nogil:
        error = io_sync(descriptor)
    if error:
        raise OSError(error, os.strerror(error))


def sync_path(path: str, int64_t again_from=-1):
    """fsync of a file or folder. From a non-negative position on, the data is written again first: an earlier sync has
    failed. Raises OSError."""
    cdef bytes name = os.fsencode(path)
    cdef const char *c_path = name
    cdef int error
    with nogil:
        error = io_sync_path(c_path, O_RDONLY) if again_from < 0 else io_sync_again(c_path, again_from)
    if error:
        raise OSError(error, os.strerror(error), path)


def rename_file(path: str, becomes: str):
    """Renames a file within its file system. Raises OSError."""
    cdef bytes name = os.fsencode(path), other = os.fsencode(becomes)
    cdef const char *c_from = name
    cdef const char *c_to = other
    cdef int error
    with nogil:
        error = io_rename(c_from, c_to)
    if error:
        raise OSError(error, os.strerror(error), path)


def delay(call: str, int64_t nanoseconds):
    """Makes calls of disk queues slow, as fail() makes them fail; 0 stops it."""
    delays[<int> CALLS[call]] = nanoseconds


def fail(call: str, error: int, skip: int = 0, times: int = 1):
    """Makes calls of disk queues fail: after skip successful ones, the next times fail with this errno.

    call: "read", "write", "sync" or "rename". times=0 stops it.
    """
    cdef Call number = CALLS[call]
    faults[<int> number].times = 0
    faults[<int> number].error = error
    faults[<int> number].skip = skip
    faults[<int> number].times = times


# ====================================================================== new files
cdef enum:
    MOST_ASIDE = 100            # most folders kept per name


cdef int newfile_open(const char *c_temporary) noexcept nogil:
    # Exclusively: a link of that name may point elsewhere.
    cdef int error, fd = io_open(c_temporary, O_RDWR | O_CREAT | O_EXCL)
    if fd != -EEXIST:
        return fd
    error = set_aside(c_temporary) if unlink(c_temporary) < 0 and errno == EISDIR else 0
    return -error if error else io_open(c_temporary, O_RDWR | O_CREAT | O_EXCL)


cdef int newfile_place(const char *c_temporary, const char *c_path) noexcept nogil:
    cdef int error = io_rename(c_temporary, c_path)
    if error == EISDIR:
        error = set_aside(c_path)
        if error == 0:
            error = io_rename(c_temporary, c_path)
    return error


cdef int set_aside(const char *c_path) noexcept nogil:
    """0 or errno."""
    cdef char c_bad[PATH_BYTES]
    cdef int number
    snprintf(c_bad, PATH_BYTES, "%s.bad", c_path)
    for number in range(1, MOST_ASIDE):
        if rename(c_path, c_bad) == 0:
            return 0
        if errno != EEXIST and errno != ENOTDIR and errno != ENOTEMPTY:
            break
        snprintf(c_bad, PATH_BYTES, "%s.bad.%d", c_path, number)
    return errno


cdef int newfile_make(const char *c_temporary, const char *c_path, const char *c_data, int64_t length,
                      bint syncs) noexcept nogil:
    cdef int64_t written
    cdef int error, fd = newfile_open(c_temporary)
    if fd < 0:
        return fd
    error = io_write(fd, c_data, length, 0, &written)
    if error == 0 and syncs:
        error = io_sync_data(fd)
    if error == 0:
        error = newfile_place(c_temporary, c_path)
    if error:
        close(fd)
        unlink(c_temporary)
        return -error
    return fd


# ====================================================================== open files

cdef enum:
    MOST_OPEN = 1024

cdef extern from *:
    """
    #define NSQC_COUNT(counter, n) __atomic_add_fetch(&(counter), (n), __ATOMIC_RELAXED)
    """
    int64_t NSQC_COUNT(int64_t counter, int64_t n) nogil

cdef int64_t open_files = 0
cdef int64_t most_open = MOST_OPEN


cdef void count_open(int64_t count) noexcept nogil:
    NSQC_COUNT(open_files, count)


cdef bint too_many_open() noexcept nogil:
    return open_files > most_open


cdef void close_counted(int *fd) noexcept nogil:
    if fd[0] >= 0:
        close(fd[0])
        count_open(-1)
    fd[0] = -1


def limit_to(int64_t count):
    """Limits the number of files that logs keep open; MOST_OPEN is the upper bound."""
    global most_open
    most_open = min(count, <int64_t> MOST_OPEN)


# ====================================================================== names

META = -1           # instead of a file number: the positions file

cdef enum:
    MIN_DIGITS = 6
    MAX_DIGITS = 17

cdef str INFIX = ".diskqueue."
cdef str ENDING = ".dat"
cdef str META_WORD = "meta"
cdef object LEFTOVER = re.compile(r"\.diskqueue\.(?:(?:meta|\d{6,})\.dat\.retired-\d+-\d+|meta\.dat\.[\d-]+\.tmp)$")

cdef object temporaries = itertools.count()


cdef void path_store(char *c_path, const char *c_prefix, int64_t number) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s%06lld.dat", c_prefix, <long long> number)


def prefix_of(str folder not None, str queue not None) -> str:
    """Common prefix of the paths of a queue's files."""
    return f"{folder}/{queue}{INFIX}"


def file_name(str queue not None, int64_t number) -> str:
    """The name of a data file, or of the positions file for META."""
    cdef char c_path[PATH_BYTES]
    if number == META:
        return f"{queue}{INFIX}{META_WORD}{ENDING}"
    path_store(c_path, b"", number)
    return f"{queue}{INFIX}{c_path.decode()}"


def path_of(str folder not None, str queue not None, int64_t number) -> str:
    """The path of a data file, or of the positions file for META."""
    return f"{folder}/{file_name(queue, number)}"


def split_name(str entry not None) -> tuple[str, int] | None:
    """(queue, number or META) of a file name; None if it is not a queue's file."""
    if not entry.endswith(ENDING):
        return None
    queue, _, word = entry[:-len(ENDING)].rpartition(INFIX)
    if not queue:
        return None
    if word == META_WORD:
        return queue, META
    if not (word.isascii() and word.isdecimal() and MIN_DIGITS <= len(word) <= MAX_DIGITS):
        return None
    if len(word) > MIN_DIGITS and word[0] == "0":
        return None
    return queue, int(word)


def split_queue(str queue not None) -> tuple[str, str | None]:
    """(topic, channel, or None for a topic's own queue) from a queue name."""
    topic, colon, channel = queue.partition(":")
    return topic, channel if colon else None


def temporary_of(str meta_path not None) -> str:
    """A path for new positions before they replace the positions file; unique per call."""
    return f"{meta_path}.{os.getpid()}-{next(temporaries)}.tmp"


def is_leftover(str entry not None) -> bool:
    """Whether an earlier run was about to remove a file of this name, or to rename it over another."""
    return LEFTOVER.search(entry) is not None


# ====================================================================== pool

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *) noexcept nogil, void *arg)
    int pthread_detach(pthread_t thread)
    int pthread_attr_init(pthread_attr_t *attr)
    int pthread_attr_destroy(pthread_attr_t *attr)
    int pthread_attr_setstacksize(pthread_attr_t *attr, size_t size)
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attr)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *cond, void *attr)
    int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *cond)
    int pthread_cond_broadcast(pthread_cond_t *cond)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *set)
    int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
    int SIG_SETMASK

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef enum:
    COLLECT_NS = 2000000        # per loop iteration, spent in job_done()
    STACK_BYTES = 262144        # of a thread; jobs are shallow
    SLOW_NS = 2000000           # a short job that takes longer is slow
    FIRST_NS = 20000000         # short jobs stay on threads this long after a slow one; doubled by each further one
    MANY_QUICK = 256            # consecutive quick jobs that reset the time to FIRST_NS
    VMSTAT_BYTES = 16384
    WINDOW_NS = 1000000000      # length of a window for counting bytes
    MUCH_BYTES = 16777216       # written in this window and the previous one: worth checking the kernel's counters
    BURST_NS = 6000000
    HERE_NS = 4000000           # most time within submit() per BURST_NS: many files may be written in one iteration

cdef int64_t LONGEST_NS = 10000000000

cdef struct State:
    # Shared by the loop and the threads, protected by the mutex. The last one to exit frees it.
    pthread_mutex_t mutex
    pthread_cond_t filled
    Job *first              # waiting, in order
    Job *last
    Job *done_first         # done, in order
    Job *done_last
    int running             # existing threads
    int most                # their maximum
    int idle                # threads waiting for a job
    int wake                # an eventfd; written when the list of done jobs becomes non-empty
    bint closing


cdef void *work(void *c_state) noexcept nogil:
    """A thread's main function; runs until the pool is closed."""
    cdef State *state = <State *> c_state
    cdef Job *job
    cdef uint64_t one = 1
    cdef bint last
    pthread_mutex_lock(&state.mutex)
    while True:
        while state.first is NULL and not state.closing:
            state.idle += 1
            pthread_cond_wait(&state.filled, &state.mutex)
            state.idle -= 1
        if state.first is NULL:
            break
        job = state.first
        state.first = job.next
        pthread_mutex_unlock(&state.mutex)
        run_timed(job)
        pthread_mutex_lock(&state.mutex)
        job.next = NULL
        if state.done_first is NULL:
            state.done_first = job
            write(state.wake, &one, sizeof(one))
        else:
            state.done_last.next = job
        state.done_last = job
    state.running -= 1
    last = state.running == 0
    pthread_mutex_unlock(&state.mutex)
    if last:
        release(state)
    return NULL


cdef bint wants_thread(State *state) noexcept nogil:
    """Wakes a thread for a job just queued. True: the caller must start one, counted already. Holds the mutex."""
    if state.idle == 0 and state.running < state.most:
        state.running += 1
        return True
    pthread_cond_signal(&state.filled)
    return False


cdef void run_timed(Job *job) noexcept nogil:
    cdef int64_t began = monotonic_ns()
    job.run(job)
    job.took_ns = monotonic_ns() - began


cdef void release(State *state) noexcept nogil:
    close(state.wake)
    free(state)


cdef class IoPool:
    """Up to `threads` threads, each started on demand. The loop collects results; without a loop, no threads."""

    def __init__(self, int threads=0, loop: AbstractEventLoop | None = None):
        self.threads = threads if loop is not None else 0
        self.distrust_ns = FIRST_NS
        self.vmstat = -1
        self.loop = loop

    cdef void submit(self, Job *job, LoopWork owner) noexcept:
        cdef State *state
        cdef bint start
        job.next = NULL
        Py_INCREF(owner)
        job.owner = <PyObject *> owner
        self.under_way += 1
        self._count_bytes(job)
        if self.runs_here(job) or not self._opened():
            run_timed(job)
            self.spent_ns += job.took_ns
            self._finish(job)
            return
        state = <State *> self.c_state
        with nogil:
            pthread_mutex_lock(&state.mutex)
            if state.first is NULL:
                state.first = job
            else:
                state.last.next = job
            state.last = job
            start = wants_thread(state)
            pthread_mutex_unlock(&state.mutex)
        if start and start_thread(state) != 0:
            self._no_thread()

    cdef void _finish(self, Job *job) noexcept:
        """Returns a finished job to its owner."""
        cdef LoopWork owner = <LoopWork> job.owner
        self.under_way -= 1
        if job.is_short:
            self._judge(job)
        owner.job_done(job)
        Py_DECREF(owner)

    cdef void _count_bytes(self, Job *job) noexcept:
        cdef int64_t now = monotonic_ns()
        if now - self.window_ns >= WINDOW_NS:
            self.bytes_before = self.bytes_now if now - self.window_ns < 2 * WINDOW_NS else 0
            self.bytes_now = 0
            self.window_ns = now
        self.bytes_now += job.bytes

    cdef bint _may_run_here(self) noexcept:
        cdef int64_t now
        if self.crowded:
            return False
        now = monotonic_ns()
        if now - self.burst_ns >= BURST_NS:
            self.burst_ns = now
            self.spent_ns = 0
        return self.spent_ns < HERE_NS and now >= self.trusted_ns

    cdef void _judge(self, Job *job) noexcept:
        """Learns from a finished short job whether the disk keeps up. A few are slow on any machine."""
        if job.took_ns <= SLOW_NS:
            self.quick += 1
            if self.quick >= MANY_QUICK:
                self.distrust_ns = FIRST_NS
            return
        self.quick = 0
        self.trusted_ns = monotonic_ns() + self.distrust_ns
        self.distrust_ns = min(2 * self.distrust_ns, LONGEST_NS)

    def look(self):
        """Called by the loop every 100 ms: checks whether the kernel may block writers.

        It does well above its background threshold. Costs some 50 µs, and only during heavy writing.
        """
        cdef char text[VMSTAT_BYTES]
        cdef ssize_t length
        cdef int64_t dirty, writeback, threshold
        if self.bytes_before + self.bytes_now < MUCH_BYTES and not self.crowded:
            return
        if self.vmstat < 0:
            self.vmstat = io_open(b"/proc/vmstat", O_RDONLY)
        if self.vmstat < 0:
            return
        length = pread(self.vmstat, text, VMSTAT_BYTES - 1, 0)
        if length <= 0:
            return
        text[length] = 0
        dirty = counter(text, b"\nnr_dirty ")
        writeback = counter(text, b"\nnr_writeback ")
        threshold = counter(text, b"\nnr_dirty_background_threshold ")
        self.crowded = threshold > 0 and dirty + writeback > threshold

    cdef void _no_thread(self) noexcept:
        """No thread could be started. If none exists at all, the next job runs here."""
        cdef State *state = <State *> self.c_state
        cdef Job *job
        pthread_mutex_lock(&state.mutex)
        state.running -= 1
        job = state.first if state.running == 0 else NULL
        if job is not NULL:
            state.first = job.next
        pthread_mutex_unlock(&state.mutex)
        if job is not NULL:
            run_timed(job)
            self._finish(job)

    cdef bint _opened(self) noexcept:
        """Creates the state shared by threads, if missing; False: failed."""
        cdef State *state
        if self.c_state is not NULL:
            return True
        state = <State *> calloc(1, sizeof(State))
        if state is NULL:
            return False
        state.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if state.wake < 0:
            free(state)
            return False
        pthread_mutex_init(&state.mutex, NULL)
        pthread_cond_init(&state.filled, NULL)
        state.most = self.threads
        self.c_state = state
        try:
            self.watching = state.wake
            self.loop.add_reader(self.watching, self.collect)
        except Exception:
            self.c_state = NULL
            self.watching = None
            release(state)
            return False
        return True

    def collect(self):
        """Called by the loop when jobs are done; with many, it continues in the next iteration."""
        cdef State *state = <State *> self.c_state
        cdef uint64_t value
        cdef int64_t began, deadline
        cdef Job *job
        cdef Job *following
        if state is NULL:
            return
        read(state.wake, &value, sizeof(value))
        with nogil:
            pthread_mutex_lock(&state.mutex)
            job = state.done_first
            state.done_first = state.done_last = NULL
            pthread_mutex_unlock(&state.mutex)
        began = monotonic_ns()
        deadline = began + COLLECT_NS
        while job is not NULL:
            following = job.next
            self._finish(job)
            job = following
            if job is not NULL and monotonic_ns() > deadline:
                self._put_back(job)
                break
        span_over(monotonic_ns() - began, b"ended reads and writes of files", "")

    cdef void _put_back(self, Job *job) noexcept:
        """Leaves finished jobs to the next iteration, ahead of jobs that finish meanwhile."""
        cdef State *state = <State *> self.c_state
        cdef uint64_t one = 1
        cdef Job *last = job
        while last.next is not NULL:
            last = last.next
        with nogil:
            pthread_mutex_lock(&state.mutex)
            last.next = state.done_first
            if state.done_first is NULL:
                state.done_last = last
            state.done_first = job
            pthread_mutex_unlock(&state.mutex)
            write(state.wake, &one, sizeof(one))

    def close(self):
        """For a shutdown, when no job is in progress: further jobs run at once, on the submitting thread."""
        cdef State *state = <State *> self.c_state
        cdef bint last
        self.threads = 0
        if self.vmstat >= 0:
            close(self.vmstat)
            self.vmstat = -1
        if state is NULL:
            return
        self.loop.remove_reader(self.watching)
        self.c_state = NULL
        self.watching = None
        pthread_mutex_lock(&state.mutex)
        state.closing = True
        last = state.running == 0
        pthread_cond_broadcast(&state.filled)
        pthread_mutex_unlock(&state.mutex)
        if last:
            release(state)


cdef int64_t counter(const char *c_text, const char *c_name) noexcept:
    """The number after a name in /proc/vmstat; 0 if missing."""
    cdef const char *c_at = strstr(c_text, c_name)
    return atoll(c_at + strlen(c_name)) if c_at is not NULL else 0


cdef int start_thread(State *state) noexcept nogil:
    """Starts a thread with signals blocked: the main thread handles them. 0 or errno."""
    cdef pthread_t thread
    cdef pthread_attr_t attr
    cdef sigset_t every, before
    cdef int error
    sigfillset(&every)
    pthread_sigmask(SIG_SETMASK, &every, &before)
    pthread_attr_init(&attr)
    pthread_attr_setstacksize(&attr, STACK_BYTES)
    error = pthread_create(&thread, &attr, work, state)
    pthread_attr_destroy(&attr)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    if error == 0:
        pthread_detach(thread)
    return error
