# The result of a command, and how its connection reacts. Header only.

cdef enum Outcome:
    DONE            # no answer
    OK              # the reply is OK
    OK_ON_COMMIT    # the reply is OK once the topic's collecting commit has succeeded
    OK_ON_RUNNING   # the same for the running commit
    REPLY           # session.reply is the response
    UPGRADE         # the same; then TLS or compression begins, according to session.layers
    ERROR           # session.reply is the error; the connection stays open
    FATAL           # session.reply is the error; the connection closes after it
    WANTS_BODY      # the line is valid: parser.expect_body has been called
    WAITS           # for an auth server: nothing was done; rerun the command from its line after resume()
    # A publish is unfinished: continue_mpub(), with session.batch.c_data set again, or later if session.awaits_room.
    SLICE_OVER
