"""Variables of inherited sockets. tests/e2e/test_service.py tests the sockets themselves."""

import os

import pytest

from nsqc.process.running import InheritError, inherited

OURS = str(os.getpid())


@pytest.mark.parametrize("environ", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "tcp:http"},
                                     {"LISTEN_PID": OURS}, {"LISTEN_PID": OURS, "LISTEN_FDS": "0"}])
def test_nothing_is_inherited(environ):
    assert inherited(environ) == {}
    # They belong to one process: its children must not inherit them.
    assert environ == {}


@pytest.mark.parametrize("count,names,text", [
    ("x", "", "LISTEN_FDS=x is not a number"),
    ("-1", "", "LISTEN_FDS=-1 is not a number"),
    ("1", "", "inherited socket 3 is named ''"),
    ("1", "smtp", "inherited socket 3 is named 'smtp', not one of tcp, http, https"),
])
def test_what_cannot_be_used_is_refused(count, names, text):
    environ = {"LISTEN_PID": OURS, "LISTEN_FDS": count, "LISTEN_FDNAMES": names, "OTHER": "stays"}
    with pytest.raises(InheritError, match=text):
        inherited(environ)
    assert environ == {"OTHER": "stays"}
