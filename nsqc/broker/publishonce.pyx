"""Publishes with an id. See the .pxd."""

from libc.string cimport memset

from nsqc.store.backlog cimport (PUT_DISK, PUT_EXITING, PUT_KNOWN, PUT_NO_MEMORY, PUT_RUNNING, PUT_TAKEN, is_refused)
from nsqc.store.log.idjournal cimport IdJournal
from nsqc.store.publishids cimport (ID_CLAIMED, ID_COLLECTED, ID_KNOWN, ID_NO_MEMORY, ID_RUNNING, PublishIds)

from nsqc.store.log import idjournal


cdef bint once_new(TopicState topic, Once *once, const char *c_id, Py_ssize_t length) noexcept:
    memset(once, 0, sizeof(Once))
    if topic.ids is not None:
        topic.ids.hash(c_id, length, &once.id)
        once.asked = True
    return once.asked


cdef int once_begins(TopicState topic, Once *once) noexcept:
    cdef int verdict
    if topic.exiting:
        return PUT_EXITING
    if topic.ids is None:       # the rule changed meanwhile
        once.asked = False
        return GO
    if topic.logs and (topic.log.ids is None or topic.log.ids.reserve(topic.ids.opened + 1) < 0):
        return PUT_NO_MEMORY
    if topic.ids.count == 0:
        topic.owner.on_aging(topic)      # so that they are forgotten even without further publishes
    verdict = topic.ids.claim(&once.id, topic.clock.monotonic, topic.commit.serial, &once.claim)
    if verdict == ID_CLAIMED:
        once.failures = topic.ids.failures
        return GO
    if verdict == ID_NO_MEMORY:
        return PUT_NO_MEMORY
    if verdict == ID_KNOWN or verdict == ID_COLLECTED or verdict == ID_RUNNING:
        topic.deduplicated += 1
        return PUT_KNOWN if verdict == ID_KNOWN else PUT_DISK if verdict == ID_COLLECTED else PUT_RUNNING
    return PUT_TAKEN


cdef void once_ended(TopicState topic, Once *once, int result) noexcept:
    cdef PublishIds ids = topic.ids
    if ids is None or once.claim == 0:
        return
    if is_refused(result) or once.wrote and once.failures != ids.failures:
        ids.release(once.claim)
    elif result == PUT_DISK or once.wrote and topic.commit.is_due():
        ids.keep_if_collected(once.claim, topic.commit.serial)
        if topic.logs and topic.log.ids is not None:
            topic.log.ids.add(&once.id, topic.log.unwritten_records() - 1)
    elif once.wrote and topic.commit.running:
        ids.keep_if_running(once.claim, topic.commit.serial)
    else:
        ids.keep(once.claim)
    once.claim = 0


cdef void once_dropped(TopicState topic, Once *once) noexcept:
    if once.claim and topic.ids is not None:
        topic.ids.release(once.claim)
    once.claim = 0


cdef int follow_dedupe(TopicState topic, int64_t window_ns, int64_t limit, object opened) except -1:
    if window_ns <= 0:
        if opened is not None and opened.has_ids:
            idjournal.remove(topic.log.folder)
        topic.ids = None        # the journal stays: a failed write may have to revoke ids
        return 0
    topic.clock.refresh()
    if topic.ids is not None:
        topic.ids.set_rule(window_ns, limit)
    elif opened is not None and opened.has_ids:
        topic.ids, topic.log.ids = idjournal.load(topic.log.folder, topic.log.manifest.log_id, topic.log.next,
                                                  window_ns, limit, topic.clock.wall, topic.clock.monotonic,
                                                  topic.log.log)
        if topic.ids.count:
            topic.owner.on_aging(topic)
    else:
        topic.ids = PublishIds(window_ns, limit)
        if topic.log is not None and topic.log.ids is not None:
            topic.log.ids.restart(topic.ids)
    give_journal(topic)
    return 0


cdef int give_journal(TopicState topic) except -1:
    """Gives the topic a journal of ids if it is in a log and remembers ids."""
    if topic.log is None or topic.ids is None:
        return 0
    if topic.log.ids is None:
        topic.log.ids = IdJournal(topic.log.folder, topic.log.log)
        topic.log.ids.restart(topic.ids)
    topic.log.ids.window_ns = topic.ids.window_ns
    return 0
