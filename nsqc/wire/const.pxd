# Numbers of the V2 protocol. A header only: nothing here is compiled by itself.

cdef enum:
    FRAME_RESPONSE = 0
    FRAME_ERROR = 1
    FRAME_MESSAGE = 2

cdef enum:
    MESSAGE_ID_BYTES = 16       # 16 lower-case hexadecimal digits
    MESSAGE_HEAD_BYTES = 26     # timestamp 8, attempts 2, id 16: before the body, on the wire and on disk
    FRAME_HEAD_BYTES = 8        # size 4, type 4
    MAX_NAME_BYTES = 64         # of a topic or channel, #ephemeral included
    MAX_LINE_BYTES = 16384      # of a command line, line feed included
    MAGIC_BYTES = 4
