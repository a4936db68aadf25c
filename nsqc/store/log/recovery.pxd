# Opens a log: which frames and positions count, after any kind of end; also offline.

from libc.stdint cimport int64_t

from nsqc.store.log.cursor cimport Earlier
from nsqc.store.log.frame cimport Buffer
from nsqc.store.log.journal cimport FoundFiles
from nsqc.store.log.positions cimport JournalState
from nsqc.store.log.segment cimport Index, Manifest, Segments
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.publishids cimport PublishIds


# ====================================================================== found
# Reads the folder of a log for the daemon's start or a tool: which segments count, and where each ends. All C; may run
# on any thread.
#
# A segment ends where the header of its successor says. The manifest has the end of the newest one if nothing was
# written since; otherwise segment_scan() finds it, and always after a power failure: then the file may have that size
# without what was written since. Segments that the manifest does not know count: a kill came before it was replaced, or
# it is from an earlier moment.

cdef enum:
    OLD_FORMAT = -1             # Found.error: the folder has files that no release has written

cdef struct Found:
    int error                   # why the log is unusable: an errno; EOPNOTSUPP: written by a later version; 0: usable
    int64_t bad_first           # the segment that is the reason; -1: none
    Manifest manifest
    bint has_manifest
    Segments segments           # owned
    bint clean                  # the newest segment ends where the manifest says
    bint lost_newest            # the manifest knows a newer one
    int64_t unlisted            # segments that are newer than the manifest
    Index index                 # owned: of the newest segment, if it was scanned
    Buffer delays               # owned: Deferral of each delayed record that is not due yet
    FoundFiles cursors          # owned
    JournalState state          # owned: of the channels


# ====================================================================== recovery
# Opens log folders at a start: threads read them ahead, the loop opens them.

cdef class Opened:
    # The contents of a folder. One TopicLog takes its segments.
    cdef Found found                # owned
    cdef readonly Earlier earlier   # channels
    cdef readonly int64_t next      # the offset after the last record
    cdef public int64_t resume_at   # the next record goes to this offset or later
    cdef readonly int64_t lost      # messages gone with the newest segment, at least
    cdef readonly int64_t had       # messages after the last record that a channel had received, and that are gone


# Enters the ids of earlier publishes that are still remembered: those in summaries, and those in segments without one.
cdef int restore_ids(TopicLog log, PublishIds ids) except -1
cdef int drop_ids(TopicLog log) except -1           # ids are no longer remembered


# ====================================================================== offline

# Reads segments for a check. For Python only: see the .pyx.
