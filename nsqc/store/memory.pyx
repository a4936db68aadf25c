"""Memory of messages: arenas of chunks, slabs in them; the clock and the checks of the debug build. See the .pxd."""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libc.stdlib cimport realloc
from posix.dlfcn cimport RTLD_LAZY, dlopen, dlsym
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap


# ====================================================================== clock
# The time shared by everything that one event causes in a daemon.

@cython.final
cdef class Clock:
    """Wall and monotonic time in nanoseconds, shared by the whole daemon."""

    def __cinit__(self):
        self.wall = self.since = wall_ns()
        self.monotonic = monotonic_ns()
        self.offset = self.wall - self.monotonic

    cdef void refresh(self) noexcept:
        cdef int64_t moved
        self.wall = wall_ns()
        self.monotonic = monotonic_ns()
        moved = self.wall - self.monotonic - self.offset
        if not -STEP_NS < moved < STEP_NS:
            self.offset += moved
            self.steps += 1
            if moved < 0:
                self.since = self.wall


# ====================================================================== rules

ENABLED: bool = bool(CHECKS)


cdef void broken(const char *c_text) noexcept nogil:
    with gil:
        raise_broken(c_text)


cdef void raise_broken(const char *c_text) noexcept:
    raise AssertionError(c_text.decode())


# ====================================================================== allocator
# Statistics of the C library's allocator, available from glibc 2.33 on.

cdef struct Info:
    # struct mallinfo2 of <malloc.h>, missing on older systems.
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost

ctypedef Info (*Ask)() noexcept nogil
ctypedef int (*Trim)(size_t) noexcept nogil

cdef void *program = dlopen(NULL, RTLD_LAZY)
cdef Ask ask = <Ask> dlsym(program, b"mallinfo2")
cdef Trim trim = <Trim> dlsym(program, b"malloc_trim")


def heap() -> tuple[int, int, int]:
    """Bytes (in use, free, free at the end, returnable to the system); zeros: unknown."""
    cdef Info info
    if ask is NULL:
        return 0, 0, 0
    info = ask()
    return info.uordblks + info.hblkhd, info.fordblks, info.keepcost


def return_free() -> None:
    """Returns free memory to the system if the C library can; call it on a thread, without the GIL."""
    if trim is not NULL:
        with nogil:
            trim(0)


# ====================================================================== arenas

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
    """Chunks in use, and resident free ones."""
    return (used_chunks + free_chunks) * CHUNK_BYTES


cdef bint huge_pages_pay() noexcept nogil:
    """Whether huge pages have been cheaper."""
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


# ====================================================================== slab

cdef extern from *:
    int clz "__builtin_clz"(unsigned int value) nogil

cdef enum:
    CHUNK_HEAD = 64
    ROOM = CHUNK_BYTES - CHUNK_HEAD
    # Size classes of small pieces.
    FINE_STEP = 8           # up to FINE_LIMIT
    FINE_LIMIT = 256
    STEP = 32               # up to SMALL_LIMIT
    SMALL_LIMIT = 2048
    FINE_CLASSES = 32
    SMALL_CLASSES = 88
    # Classes of larger pieces, by pieces per chunk: OCTAVE classes between a power of two and the next.
    OCTAVE = 16
    LEAST_PIECES = 16
    CLASSES = 200           # up to 2048 pieces: more than the smallest of them needs
    LARGEST = ROOM // LEAST_PIECES & ~7     # larger pieces get a mapping each
    # Mappings kept for reuse.
    PAGE_BYTES = 4096
    HUGE_FROM = 4194304
    KEPT_MAPPINGS = 8
    KEPT_BYTES = 16777216

cdef struct Mapping:        # at the start of a mapping while it is kept
    Mapping *next
    size_t bytes

cdef Chunk *partial[CLASSES]        # chunks with free pieces, the current one first
cdef uint32_t chunks_of[CLASSES]
cdef Mapping *c_kept = NULL
cdef int kept = 0
cdef size_t kept_bytes = 0
cdef int64_t mapped_bytes = 0


cdef inline uint32_t class_of(size_t size) noexcept nogil:
    cdef uint32_t pieces, octave
    if size <= FINE_LIMIT:
        return <uint32_t> ((size - 1) // FINE_STEP)
    if size <= SMALL_LIMIT:
        return <uint32_t> (FINE_CLASSES + (size - FINE_LIMIT - 1) // STEP)
    pieces = <uint32_t> (ROOM // ((size + 7) & ~<size_t> 7))
    octave = <uint32_t> (31 - clz(pieces)) - 4
    return SMALL_CLASSES + octave * OCTAVE + ((pieces >> octave) - LEAST_PIECES)


cdef inline uint32_t piece_bytes(uint32_t index) noexcept nogil:
    if index < FINE_CLASSES:
        return (index + 1) * FINE_STEP
    if index < SMALL_CLASSES:
        return FINE_LIMIT + (index - FINE_CLASSES + 1) * STEP
    index -= SMALL_CLASSES
    return (ROOM // ((LEAST_PIECES + index % OCTAVE) << (index // OCTAVE))) & ~<uint32_t> 7


cdef void *slab_alloc(size_t size) noexcept nogil:
    cdef uint32_t index
    cdef Chunk *chunk
    cdef char *c_piece
    if size > LARGEST:
        return map_new(size)
    index = class_of(size)
    chunk = partial[index]
    if chunk is NULL:
        chunk = chunk_new(index)
        if chunk is NULL:
            return NULL
    if chunk.free is not NULL:
        c_piece = <char *> chunk.free
        chunk.free = (<void **> c_piece)[0]
    else:
        chunk.fresh -= 1
        c_piece = <char *> chunk + CHUNK_HEAD + <size_t> chunk.fresh * chunk.piece_bytes
    chunk.used += 1
    if chunk.free is NULL and chunk.fresh == 0:
        unlink(chunk)
    return c_piece


cdef void slab_free(void *c_piece, size_t size) noexcept nogil:
    cdef Chunk *chunk
    if size > LARGEST:
        map_free(c_piece, size)
        return
    chunk = <Chunk *> (<uintptr_t> c_piece & ~<uintptr_t> (CHUNK_BYTES - 1))
    (<void **> c_piece)[0] = chunk.free
    chunk.free = c_piece
    chunk.used -= 1
    if chunk.used == 0:
        if chunk.listed:
            unlink(chunk)
        chunk_free(chunk)
    elif not chunk.listed:
        link(chunk)


# ---------------------------------------------------------------------- mappings

cdef inline size_t pages(size_t size) noexcept nogil:
    return (size + PAGE_BYTES - 1) & ~<size_t> (PAGE_BYTES - 1)


cdef void *map_new(size_t size) noexcept nogil:
    """A kept mapping of exactly this many pages, or a new one."""
    global c_kept, kept, kept_bytes, mapped_bytes
    cdef size_t need = pages(size)
    cdef Mapping **c_at = &c_kept
    cdef Mapping *mapping
    cdef void *c_mapped
    while c_at[0] is not NULL:
        mapping = c_at[0]
        if mapping.bytes == need:
            c_at[0] = mapping.next
            kept -= 1
            kept_bytes -= need
            return mapping
        c_at = &mapping.next
    c_mapped = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if c_mapped == MAP_FAILED:
        return NULL
    if need >= HUGE_FROM and huge_pages_pay():
        madvise(c_mapped, need, MADV_HUGEPAGE)
    mapped_bytes += need
    return c_mapped


cdef void map_free(void *c_mapped, size_t size) noexcept nogil:
    global c_kept, kept, kept_bytes, mapped_bytes
    cdef size_t bytes = pages(size)
    cdef Mapping *mapping = <Mapping *> c_mapped
    if kept < KEPT_MAPPINGS and kept_bytes + bytes <= KEPT_BYTES:
        mapping.bytes = bytes
        mapping.next = c_kept
        c_kept = mapping
        kept += 1
        kept_bytes += bytes
        return
    mapped_bytes -= bytes
    munmap(c_mapped, bytes)


# ---------------------------------------------------------------------- chunks

cdef void link(Chunk *chunk) noexcept nogil:
    """Inserts it after the current chunk, so allocation stays in one place."""
    cdef Chunk *first = partial[chunk.index]
    chunk.listed = 1
    chunk.previous = first
    if first is NULL:
        chunk.next = NULL
        partial[chunk.index] = chunk
        return
    chunk.next = first.next
    first.next = chunk
    if chunk.next is not NULL:
        chunk.next.previous = chunk


cdef void unlink(Chunk *chunk) noexcept nogil:
    chunk.listed = 0
    if chunk.previous is NULL:
        partial[chunk.index] = chunk.next
    else:
        chunk.previous.next = chunk.next
    if chunk.next is not NULL:
        chunk.next.previous = chunk.previous


cdef Chunk *chunk_new(uint32_t index) noexcept nogil:
    # The first chunk of a class may hold only a few pieces.
    cdef Chunk *chunk = <Chunk *> chunk_take(chunks_of[index] > 0)
    if chunk is NULL:
        return NULL
    chunks_of[index] += 1
    chunk.free = NULL
    chunk.used = 0
    chunk.piece_bytes = piece_bytes(index)
    chunk.fresh = ROOM // chunk.piece_bytes
    chunk.index = index
    link(chunk)
    return chunk


cdef void chunk_free(Chunk *chunk) noexcept nogil:
    chunks_of[chunk.index] -= 1
    chunk_give(chunk)


cdef int64_t slab_bytes() noexcept nogil:
    """Obtained from the system, including memory kept for reuse."""
    return chunk_bytes() + mapped_bytes


def held_bytes() -> int:
    """Bytes obtained from the system for messages, including memory kept for reuse."""
    return slab_bytes()
