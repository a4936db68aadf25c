# The result of a command, and what its connection does about it. A header without a module.

cdef enum Outcome:
    DONE            # there is nothing to answer
    OK              # the reply is OK
    OK_ON_COMMIT    # the reply is OK once the commit that its topic is collecting has succeeded
    OK_ON_RUNNING   # the same for the commit in progress
    REPLY           # session.reply is the response
    UPGRADE         # the same, and then TLS or compression begins, as session.layers says
    ERROR           # session.reply is the error; the connection stays open
    FATAL           # session.reply is the error; the connection closes after it
    WANTS_BODY      # the line is fine: parser.expect_body has been called
    WAITS           # for an auth server: nothing was done yet; run the command again from its line after resume()
    # A publish is unfinished: continue_mpub(), with session.batch.c_data set again, or later if session.awaits_room.
    SLICE_OVER
