"""What a topic consists of. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.broker.figures cimport (
    DedupeFigures, TopicCounts, TopicFigures, TopicLevels, figure_names, figures_tuple)
from nsqc.store.log.buffer cimport buffer_free

cdef TopicFigures no_figures
cdef DedupeFigures no_dedupe
FIGURES = figure_names(no_figures) + figure_names(no_dedupe)
cdef tuple NO_DEDUPE = (None,) * len(figure_names(no_dedupe))


@cython.final
cdef class OpenBatch:
    """What a multi-publish has published so far, if that is to be appended to a log as a whole."""

    def __dealloc__(self):
        buffer_free(&self.staged)


cdef class TopicState(ChannelOwner):
    """What the parts of a topic share."""

    cdef void refresh(self) noexcept:
        pass

    cdef TopicLevels levels(self) noexcept:
        return TopicLevels(0, 0)

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
        """The numbers of /stats, in the order of FIGURES. None: the topic remembers no ids of publishes."""
        cdef TopicFigures figures = TopicFigures(self.levels(), self.counts())
        cdef DedupeFigures dedupe
        if self.ids is None:
            return figures_tuple(&figures, sizeof(figures)) + NO_DEDUPE
        dedupe = self.dedupe()
        return figures_tuple(&figures, sizeof(figures)) + figures_tuple(&dedupe, sizeof(dedupe))
