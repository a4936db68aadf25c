"""The state of a topic, and its metrics. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.figures cimport (
    DedupeFigures, TopicCounts, TopicFigures, TopicLevels, figure_names, figures_tuple)

cdef TopicFigures no_figures
cdef DedupeFigures no_dedupe
FIGURES = figure_names(no_figures) + figure_names(no_dedupe)
cdef tuple NO_DEDUPE = (None,) * len(figure_names(no_dedupe))


cdef class Storage:
    """Stores the messages of a topic."""

    cdef int put(self, TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        return 0

    cdef bint put_batch(self, TopicState topic, OpenBatch batch) noexcept:
        return True

    cdef bint lags(self, TopicState topic) noexcept:
        return False

    cdef object write_path(self, TopicState topic):
        raise NotImplementedError

    cdef int64_t depth(self, TopicState topic) noexcept:
        return 0

    cdef int64_t disk_depth(self, TopicState topic) noexcept:
        return 0

    cdef void empty(self, TopicState topic) noexcept:
        pass

    cdef int add_channel(self, TopicState topic, StoreOwner channel, start) except -1:
        return 0

    cdef void channel_gone(self, TopicState topic) noexcept:
        pass

    cdef void pause(self, TopicState topic) noexcept:
        pass

    cdef void unpause(self, TopicState topic) noexcept:
        pass

    cdef int delete(self, TopicState topic) except -1:
        return 0

    cdef int64_t close(self, TopicState topic, bint written) except -1:
        return 0


cdef class TopicState(StoreOwner):
    """The fields of a topic, and what its channels call."""

    cdef void storage_changed(self) noexcept:
        pass

    cdef void on_channel_written(self, StoreOwner channel, int error, bint stuck) noexcept:
        pass

    cdef void on_moved(self) noexcept:
        pass

    cdef void on_room(self) noexcept:
        pass

    cdef int on_clients_gone(self, StoreOwner channel) except -1:
        return 0

    # ------------------------------------------------------------------ metrics

    cdef int64_t count_waiting(self) noexcept:
        cdef Storage storage
        cdef int64_t count = 0
        for storage in self.storages:
            count += storage.depth(self)
        return count

    cdef int64_t count_on_disk(self) noexcept:
        cdef Storage storage
        cdef int64_t count = 0
        for storage in self.storages:
            count += storage.disk_depth(self)
        return count

    cdef TopicLevels levels(self) noexcept:
        return TopicLevels(self.count_waiting(), self.count_on_disk())

    cdef TopicCounts counts(self) noexcept:
        return TopicCounts(self.message_count, self.message_bytes, self.expired_count, self.overflow_count)

    cdef TopicCounts metered(self) noexcept:
        cdef TopicCounts counts = self.counts()
        counts.message_count += self.taken_count
        counts.message_bytes += self.taken_bytes
        return counts

    cdef DedupeFigures dedupe(self) noexcept:
        return DedupeFigures(self.ids.count, <int64_t> self.deduplicated, <int64_t> self.ids.forgotten)

    def figures(self) -> tuple:
        """The numbers of /stats, in the order of FIGURES. None: the topic does not remember ids."""
        cdef TopicFigures figures = TopicFigures(self.levels(), self.counts())
        cdef DedupeFigures dedupe
        if self.ids is None:
            return figures_tuple(&figures, sizeof(figures)) + NO_DEDUPE
        dedupe = self.dedupe()
        return figures_tuple(&figures, sizeof(figures)) + figures_tuple(&dedupe, sizeof(dedupe))

    @property
    def depth(self) -> int:
        """Messages in the topic's own backlog."""
        return self.count_waiting()

    @property
    def backend_depth(self) -> int:
        """Those of them on disk."""
        return self.count_on_disk()

    @property
    def in_log(self) -> bool:
        """Whether it publishes to a log."""
        return self.logs

    @property
    def full(self) -> bool:
        """Whether large publishes should wait: the next commit is large enough."""
        return self.commit.is_full()

    @property
    def disk(self):
        """The DiskQueue of the backlog; None: no disk."""
        return self.backlog.disk

    @property
    def probe_path(self) -> str:
        """The file that receives messages."""
        return self.storage.write_path(self)
