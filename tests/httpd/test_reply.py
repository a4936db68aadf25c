"""The Date header."""

from email.utils import formatdate

from nsqc.httpd.reply import http_date


def test_dates_are_those_of_the_email_package():
    for unix in (0, 951_782_400, 1_709_164_799, 4_102_444_800, *range(0, 2_000_000_000, 86_400 * 397 + 12_345)):
        assert http_date(unix) == formatdate(unix, usegmt=True)
