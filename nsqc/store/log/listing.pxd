# The snapshots and journals in the folder of a log, by name. Numbers of journals follow each other: a name that is far
# from all others, and whose file does not begin as it would have to, is not one of them.

from libc.stdint cimport int64_t

cdef enum:
    JOURNAL = 1
    SNAPSHOT = 2
    TEMPORARY = 3               # a snapshot whose writing was interrupted

cdef struct CursorFile:
    int kind
    int64_t number
    bint damaged                # found when it was read

cdef struct Listing:
    CursorFile *files           # owned; by number, a snapshot before the journal
    int64_t count, room
    int64_t strays              # files that are not of this log: files[count : count + strays]


# The listing need not be initialized, and is to be freed in any case. 0 or errno.
cdef int listing_read(Listing *listing, const char *c_folder) noexcept nogil
# For who goes through the folder in any case: from an empty listing, name after name, then the end. 0 or errno.
cdef int listing_add(Listing *listing, const char *c_name) noexcept nogil
cdef int listing_end(Listing *listing, const char *c_folder) noexcept nogil
cdef void listing_free(Listing *listing) noexcept nogil
# c_path: room for PATH_BYTES.
cdef void cursor_path(char *c_path, const char *c_folder, CursorFile *file) noexcept nogil
cdef object file_name(CursorFile *file)

cdef extern from *:
    """
    #include <dirent.h>
    #include <errno.h>
    #include <sys/stat.h>
    /* The next entry; NULL at the end, or with an errno. */
    static inline struct dirent *nsqc_next_entry(DIR *folder, int *error) {
        struct dirent *entry;
        errno = 0;
        entry = readdir(folder);
        *error = entry ? 0 : errno;
        return entry;
    }
    /* Whether it is a file, or a link to one. */
    static inline int nsqc_leads_to_file(DIR *folder, struct dirent *entry) {
        struct stat state;
        if (entry->d_type == DT_REG)
            return 1;
        return fstatat(dirfd(folder), entry->d_name, &state, 0) == 0 && S_ISREG(state.st_mode);
    }
    """
    ctypedef struct DIR:
        pass
    ctypedef struct dirent_t "struct dirent":
        char *d_name
    DIR *opendir(const char *path) nogil
    dirent_t *nsqc_next_entry(DIR *folder, int *error) nogil
    bint nsqc_leads_to_file(DIR *folder, dirent_t *entry) nogil
    int closedir(DIR *folder) nogil
