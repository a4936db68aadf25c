"""Memory in chunks, populated and released by a thread. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libc.stdlib cimport realloc
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from nsqc.store.clock cimport monotonic_ns

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *addr, size_t length, int advice)
    int MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE

cdef extern from *:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <time.h>
    static pthread_mutex_t nsqc_arenas_mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t nsqc_arenas_wanted;
    static inline void nsqc_arenas_lock(void) { pthread_mutex_lock(&nsqc_arenas_mutex); }
    static inline void nsqc_arenas_unlock(void) { pthread_mutex_unlock(&nsqc_arenas_mutex); }
    static inline void nsqc_arenas_signal(void) { pthread_cond_signal(&nsqc_arenas_wanted); }

    /* Page by page: one madvise() for the whole chunk would keep the loop from mapping memory meanwhile. */
    static void nsqc_arenas_touch(char *chunk, size_t bytes) {
        for (size_t at = 0; at < bytes; at += 4096)
            ((volatile char *)chunk)[at] = 0;
    }

    /* Waits with the mutex held; ns: timeout, 0: until signalled. */
    static void nsqc_arenas_wait(int64_t ns) {
        struct timespec until;
        if (ns == 0) {
            pthread_cond_wait(&nsqc_arenas_wanted, &nsqc_arenas_mutex);
            return;
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (until.tv_nsec + ns) / 1000000000;
        until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
        pthread_cond_timedwait(&nsqc_arenas_wanted, &nsqc_arenas_mutex, &until);
    }

    /* Starts the thread with all signals blocked: the loop's thread handles them. Returns an errno. */
    static int nsqc_arenas_start(void *(*run)(void *)) {
        pthread_t thread;
        pthread_condattr_t clock;
        sigset_t all, before;
        int error;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&nsqc_arenas_wanted, &clock);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&thread, NULL, run, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error == 0) {
            pthread_detach(thread);
            pthread_setname_np(thread, "nsqc-memory");
        }
        return error;
    }
    """
    void touch "nsqc_arenas_touch"(char *chunk, size_t bytes) nogil
    void lock "nsqc_arenas_lock"() nogil
    void unlock "nsqc_arenas_unlock"() nogil
    void signal_thread "nsqc_arenas_signal"() nogil
    void wait "nsqc_arenas_wait"(int64_t ns) nogil
    int start_thread "nsqc_arenas_start"(void *(*run)(void *) noexcept nogil) nogil

cdef enum:
    ARENA_CHUNKS = 32
    SMALL = 0
    HUGE = 1
    # Free chunks kept permanently, and how many may be populated ahead: a share of those in use, so memory stays in
    # proportion to the messages.
    KEPT = 4
    LEAST_AHEAD = 2
    MOST_AHEAD = 16
    SHARE_AHEAD = 8
    # Chunks of one kind of page between two trials of the other; doubled while the other costs more.
    FIRST_TRY = 4
    LAST_TRY = 512

cdef int64_t LOOK_NS = 200000000            # between two checks by the thread for unused chunks
cdef int64_t RELEASE_NS = 4000000000        # a chunk free for this long is released

cdef struct Arena:
    char *base
    uint32_t chunks
    uint32_t blank              # one bit per chunk: not resident
    int kind                    # of its pages

cdef struct Free:               # at the start of a free chunk
    Free *next

cdef Arena *c_arenas = NULL     # owned
cdef int64_t arenas = 0
cdef Free *c_free = NULL        # resident
cdef int64_t free_chunks = 0
cdef int64_t used_chunks = 0
cdef int64_t least_free = 0     # minimum since the last release
cdef int64_t ahead = 0          # free chunks that the thread provides while memory grows
cdef int64_t missed = 0         # chunks that grew memory and were not resident, since the thread's last check
cdef int64_t grown = 0          # chunks that grew memory, since then
cdef bint running = False       # the thread exists
cdef bint asleep = False        # it waits for a signal
# Used by the thread only.
cdef int64_t[2] cost_ns         # cost of populating a chunk, by kind of page; 0: unknown
cdef int kind_now = SMALL
cdef int64_t until_try = FIRST_TRY
cdef int64_t tries_after = FIRST_TRY
cdef int64_t paced_ns = 0       # when memory last grew, or `ahead` was last halved


# ---------------------------------------------------------------------- called by the loop

cdef void *chunk_take(bint grows) noexcept nogil:
    global c_free, free_chunks, used_chunks, least_free, missed, grown
    cdef Free *chunk
    lock()
    chunk = c_free
    if chunk is not NULL:
        c_free = chunk.next
        free_chunks -= 1
        least_free = min(least_free, free_chunks)
    else:
        chunk = <Free *> take_blank(SMALL)
        missed += grows
    if chunk is not NULL:
        used_chunks += 1
    if grows:
        grown += 1
        if running and free_chunks < max(ahead, 1):
            signal_thread()
        elif not running:
            begin_thread()
    unlock()
    return chunk


cdef void chunk_give(void *given) noexcept nogil:
    global c_free, free_chunks, used_chunks
    cdef Free *chunk = <Free *> given
    lock()
    used_chunks -= 1
    if free_chunks >= KEPT and not running:
        begin_thread()
        if not running:
            release(<char *> chunk)
            note_blank(<char *> chunk)
            unlock()
            return
    chunk.next = c_free
    c_free = chunk
    free_chunks += 1
    if asleep and free_chunks > KEPT:
        signal_thread()
    unlock()


cdef void begin_thread() noexcept nogil:
    """If the system has no thread left, the loop populates and releases memory itself."""
    global running
    running = start_thread(run) == 0


cdef int64_t chunk_bytes() noexcept nogil:
    return (used_chunks + free_chunks) * CHUNK_BYTES


cdef bint huge_pages_pay() noexcept nogil:
    return cost_ns[HUGE] != 0 and cost_ns[HUGE] <= cost_ns[SMALL]


# ---------------------------------------------------------------------- arenas; all with the mutex held

cdef char *take_blank(int kind) noexcept nogil:
    """A non-resident chunk; NULL: no memory."""
    cdef int64_t index
    cdef uint32_t bit
    for index in range(arenas - 1, -1, -1):
        if c_arenas[index].kind == kind and c_arenas[index].blank:
            break
    else:
        index = new_arena(kind, ARENA_CHUNKS)
        if index < 0:
            index = new_arena(kind, 1)      # address space may be limited
        if index < 0:
            return NULL
    for bit in range(ARENA_CHUNKS):
        if c_arenas[index].blank >> bit & 1:
            break
    c_arenas[index].blank &= ~(<uint32_t> 1 << bit)
    return c_arenas[index].base + <size_t> bit * CHUNK_BYTES


cdef int64_t new_arena(int kind, uint32_t chunks) noexcept nogil:
    """Creates an arena. Returns its index; -1: no memory."""
    global c_arenas, arenas
    cdef size_t bytes = <size_t> chunks * CHUNK_BYTES, before
    cdef char *c_mapped
    cdef Arena *grown_list = <Arena *> realloc(c_arenas, <size_t> (arenas + 1) * sizeof(Arena))
    if grown_list is NULL:
        return -1
    c_arenas = grown_list
    # One chunk more than needed, to align to the chunk size; the excess is unmapped.
    c_mapped = <char *> mmap(NULL, bytes + CHUNK_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if c_mapped == <char *> MAP_FAILED:
        return -1
    before = <size_t> (-<uintptr_t> c_mapped & (CHUNK_BYTES - 1))
    if before:
        munmap(c_mapped, before)
    munmap(c_mapped + before + bytes, CHUNK_BYTES - before)
    madvise(c_mapped + before, bytes, MADV_HUGEPAGE if kind == HUGE else MADV_NOHUGEPAGE)
    c_arenas[arenas].base = c_mapped + before
    c_arenas[arenas].kind = kind
    c_arenas[arenas].chunks = chunks
    c_arenas[arenas].blank = 0xFFFFFFFF if chunks == ARENA_CHUNKS else (<uint32_t> 1 << chunks) - 1
    arenas += 1
    return arenas - 1


cdef void note_blank(char *chunk) noexcept nogil:
    """Marks a chunk released."""
    cdef int64_t index
    cdef size_t at
    for index in range(arenas):
        if chunk >= c_arenas[index].base:
            at = <size_t> (chunk - c_arenas[index].base) // CHUNK_BYTES
            if at < c_arenas[index].chunks:
                c_arenas[index].blank |= <uint32_t> 1 << at
                return


cdef void release(char *chunk) noexcept nogil:
    """Returns a chunk's memory to the system. Needs no mutex."""
    madvise(chunk, CHUNK_BYTES, MADV_DONTNEED)


# ---------------------------------------------------------------------- the thread

cdef void *run(void *unused) noexcept nogil:
    global asleep, least_free
    cdef int64_t next_release = monotonic_ns() + RELEASE_NS
    lock()
    while True:
        pace()
        while free_chunks < ahead:
            if not populate():
                break
            pace()
        if monotonic_ns() >= next_release:
            release_unneeded()
            next_release = monotonic_ns() + RELEASE_NS
        if ahead == 0 and free_chunks <= KEPT:
            asleep = True
            wait(0)
            asleep = False
            least_free = free_chunks
            next_release = monotonic_ns() + RELEASE_NS
        else:
            wait(LOOK_NS)


cdef void pace() noexcept nogil:
    """Doubles `ahead` if it was too small, and halves it after each check without growth."""
    global ahead, missed, grown, paced_ns
    cdef int64_t now = monotonic_ns()
    if missed or (grown and ahead == 0):
        ahead = max(min(2 * ahead, used_chunks // SHARE_AHEAD, <int64_t> MOST_AHEAD), <int64_t> LEAST_AHEAD)
    elif not grown and now - paced_ns >= LOOK_NS:
        ahead //= 2
        paced_ns = now
    if grown:
        paced_ns = now
    missed = grown = 0


cdef bint populate() noexcept nogil:
    """Adds a resident chunk to the free list; False: no memory."""
    global c_free, free_chunks
    cdef int kind = choose_kind()
    cdef char *chunk = take_blank(kind)
    cdef int64_t began_ns, took_ns
    if chunk is NULL:
        return False
    unlock()
    began_ns = monotonic_ns()
    touch(chunk, CHUNK_BYTES)
    took_ns = monotonic_ns() - began_ns
    cost_ns[kind] = took_ns if cost_ns[kind] == 0 else cost_ns[kind] + (took_ns - cost_ns[kind]) // 4
    lock()
    (<Free *> chunk).next = c_free
    c_free = <Free *> chunk
    free_chunks += 1
    return True


cdef int choose_kind() noexcept nogil:
    """The kind of page that has been cheaper; the other one now and then, to compare."""
    global kind_now, until_try, tries_after
    cdef int cheaper = HUGE if huge_pages_pay() else SMALL
    if cheaper != kind_now:
        kind_now = cheaper
        tries_after = FIRST_TRY
        until_try = tries_after
    until_try -= 1
    if until_try > 0:
        return kind_now
    tries_after = min(2 * tries_after, <int64_t> LAST_TRY)
    until_try = tries_after
    return HUGE if kind_now == SMALL else SMALL


cdef void release_unneeded() noexcept nogil:
    """Releases chunks that stayed free since the last release."""
    global c_free, free_chunks, least_free
    cdef int64_t unneeded = min(least_free, free_chunks) - max(ahead, <int64_t> KEPT)
    cdef Free *chunk
    while unneeded > 0 and free_chunks > KEPT:
        chunk = c_free
        c_free = chunk.next
        free_chunks -= 1
        unneeded -= 1
        unlock()
        release(<char *> chunk)
        lock()
        note_blank(<char *> chunk)
    least_free = free_chunks


def counts() -> tuple[int, int, int, int]:
    """Chunks in use, free chunks, and the nanoseconds to populate one with small and with huge pages; 0: unknown."""
    lock()
    counted = (used_chunks, free_chunks, cost_ns[SMALL], cost_ns[HUGE])
    unlock()
    return counted
