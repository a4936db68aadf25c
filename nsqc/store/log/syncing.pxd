# What a sync of a log that begins now has to do; see nsqc.store.disk.syncer.Work.

from nsqc.store.log.logstate cimport LogState

cdef tuple sync_work(LogState log)
