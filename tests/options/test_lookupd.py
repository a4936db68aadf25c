"""The options of the lookup server."""

import pytest

from nsqc.commands.pages.template import template
from nsqc.log import INFO, WARN
from nsqc.options.declared import OptionError
from nsqc.options.file import read_config
from nsqc.options.flags import parse_flags
from nsqc.options.option import FlagError
from nsqc.options.resolve import resolve
from nsqc.options.servers import LOOKUPD, LookupdOptions


def test_defaults_are_nsqlookupds():
    options = LookupdOptions()
    assert (options.tcp_address, options.http_address) == ("0.0.0.0:4160", "0.0.0.0:4161")
    assert (options.inactive_producer_timeout, options.tombstone_lifetime) == (300 * 10**9, 45 * 10**9)
    assert (options.log_prefix, options.log_level) == ("[nsqlookupd] ", INFO)


def test_flags_of_the_daemon_are_not_known():
    with pytest.raises(FlagError, match="unknown flag"):
        parse_flags(["--mem-queue-size=1"], LOOKUPD)
    with pytest.raises(FlagError, match="did you mean --tombstone-lifetime"):
        parse_flags(["--tombstone-lifetme=1s"], LOOKUPD)
    with pytest.raises(FlagError, match="unknown flag"):
        parse_flags(["--tombstone-lifetime=1s"])


def test_flags_win_over_the_file(tmp_path):
    path = tmp_path / "l.cfg"
    path.write_text('log_level = "warn"\ntombstone_lifetime = 1500\nother = 1\n[topics."a"]\nstorage = "log"\n')
    options, unknown = resolve(LOOKUPD, {"config": str(path), "tcp_address": "1.2.3.4:5"})
    assert (options.log_level, options.tombstone_lifetime, options.tcp_address) == (WARN, 1_500_000_000, "1.2.3.4:5")
    assert list(unknown) == ["other", "topics"]


@pytest.mark.parametrize(("line", "complaint"), [
    ('tombstone_lifetme = "1s"', "did you mean tombstone_lifetime"),
    ('tombstone_lifetime = "soon"', "cannot be used"),
    ('tombstone_lifetime = "-1s"', "--tombstone-lifetime must be at least 0s"),
    ("max_connections = -1", "--max-connections must be at least 0"),
])
def test_what_is_wrong_is_refused(tmp_path, line, complaint):
    path = tmp_path / "l.cfg"
    path.write_text(line + "\n")
    with pytest.raises(OptionError, match=complaint):
        resolve(LOOKUPD, {"config": str(path)})


def test_the_written_file_has_every_key_and_its_default(tmp_path):
    path = tmp_path / "l.cfg"
    path.write_text("\n".join(line[1:] if line.startswith("#") and not line.startswith("# ") else line
                              for line in template(LOOKUPD).splitlines()))
    values, unknown = read_config(str(path), LOOKUPD)
    assert unknown == {}
    assert LookupdOptions().replace(**values) == LookupdOptions()
    assert values.keys() == set(LOOKUPD.keys.values())
