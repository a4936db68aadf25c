# A segment compared with its index, and the records that lie in it. The functions are for Python: see .pyi.

from libc.stdint cimport int64_t
from nsqc.store.disk.segment cimport Window

cdef enum:
    IS_SOUND = 0
    IS_BAD_ENTRY = 1        # its entry is damaged, or leads to where the record cannot be
    IS_BAD_RECORD = 2       # its entry is sound, and the record is not what it says, or not there
    IS_BLANK = 3            # its entry never reached the disk

cdef struct Scan:
    Window data
    Window index
    int data_fd, index_fd
    int64_t first, end      # offsets
    int64_t offset          # where the scan is
    int64_t at              # in the data: where the next record begins, as far as that is known
    bint known              # that it begins exactly there
    bint skipped            # but the one that check() looked at does not
    int error
