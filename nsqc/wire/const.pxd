# Constants of the V2 protocol. Header only: there is no module.

cdef enum:
    FRAME_RESPONSE = 0
    FRAME_ERROR = 1
    FRAME_MESSAGE = 2

cdef enum:
    SIZE_BYTES = 4              # of a size field: before frames, bodies, messages of an MPUB, records on disk
    FRAME_HEAD_BYTES = 8        # size 4, type 4
    MAX_NAME_BYTES = 64         # of a topic or channel, #ephemeral included
    MAX_LINE_BYTES = 16384      # of a command line, line feed included
    MAGIC_BYTES = 4

# A message's head, on the wire and on disk: timestamp 8, attempts 2, id 16. The body follows.
cdef enum:
    TIMESTAMP_AT = 0
    ATTEMPTS_AT = 8
    MESSAGE_ID_AT = 10
    MESSAGE_ID_BYTES = 16       # 16 lower-case hexadecimal digits
    MESSAGE_HEAD_BYTES = 26
