"""Files that stay open between reads. See the .pxd."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t
from posix.unistd cimport close

from nsqc.store.log.openfiles cimport stays_open, was_closed
from nsqc.store.log.reads cimport ReadRecords, records_close


cdef void readfiles_lend(ReadFiles *files, ReadRecords *job) noexcept:
    job.keeps_open = True
    job.dat = job.idx = -1
    if files.dat >= 0 and files.first == job.first:
        job.dat = files.dat
        job.idx = files.idx


cdef bint readfiles_return(ReadFiles *files, ReadRecords *job, bint closed) noexcept:
    cdef bint lent = job.dat >= 0 and job.dat == files.dat
    cdef bint sound = job.error == 0 or job.error == EAGAIN
    job.keeps_open = False
    if lent:
        if not sound:
            readfiles_close(files)      # the next read opens what is there then
        job.dat = job.idx = -1
        return False
    if job.dat < 0:
        return False
    readfiles_close(files)
    if closed or not sound or not stays_open(2):
        records_close(job)
        return False
    files.first = job.first
    files.dat = job.dat
    files.idx = job.idx
    job.dat = job.idx = -1
    return True


cdef void readfiles_close(ReadFiles *files) noexcept:
    if files.dat >= 0:
        close(files.dat)
        close(files.idx)
        was_closed(2)
    files.dat = files.idx = -1


cdef void readfiles_removed(ReadFiles *files, int64_t first) noexcept:
    if files.first < first:
        readfiles_close(files)
