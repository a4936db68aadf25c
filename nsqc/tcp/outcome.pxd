# What a command has come to, and what its connection does about it. A header only: nothing here is compiled by itself.

cdef enum Outcome:
    DONE            # there is nothing to answer
    OK              # the reply is OK
    OK_ON_COMMIT    # the reply is OK once the commit that its topic is collecting has succeeded
    OK_ON_RUNNING   # the same for the commit under way
    REPLY           # session.reply is the response
    UPGRADE         # the same, and behind it come TLS or compression, as session.upgrade says
    ERROR           # session.reply is the error; the connection stays open
    FATAL           # session.reply is the error; the connection closes behind it
    WANTS_BODY      # the line is fine: parser.expect_body has been called
    WAITS           # for an auth server: nothing has been done yet; run the command again from its line after resume()
    # A publish is unfinished: continue_mpub(), with session.batch.c_at set again, or later if session.awaits_room.
    SLICE_OVER
