"""Both text formats, as the official client's parsers read them, and content negotiation."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.metrics.declared import EVERY, Metric, Type
from nsqc.metrics.durations import BOUNDS_S, Durations
from nsqc.metrics.encoding import OPEN_METRICS, TEXT, family, format_for, histogram
from tests.metrics import pages

FORMS = {pages.TEXT: TEXT, pages.OPEN_METRICS: OPEN_METRICS}
# The Accept headers of Prometheus 2.42 and 3.x.
OLD = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
       "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
NEW = ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
       "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
       "text/plain;version=0.0.4;q=0.3,*/*;q=0.2")


@pytest.mark.parametrize("accept,wanted", [
    ("", TEXT), ("*/*", TEXT), ("text/plain", TEXT), ("text/html, */*;q=0.8", TEXT), ("application/json", TEXT),
    (OLD, OPEN_METRICS), (NEW, OPEN_METRICS), (NEW.replace("q=0.6", "q=0"), TEXT),
    ("application/openmetrics-text", OPEN_METRICS), ('Application/OpenMetrics-Text; version="1.0.0"', OPEN_METRICS),
    ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", TEXT),
    ("application/openmetrics-text;q=0.3,text/plain;q=0.7", TEXT),
    ("text/plain;q=0.7,application/openmetrics-text;q=0.7", TEXT),
    ("application/openmetrics-text;q=0.7,text/plain;q=0.7", OPEN_METRICS),
    ("application/openmetrics-text;q=x", TEXT), ("application/openmetrics-text;q=nan", TEXT), (";;,,;q=,=", TEXT),
    ("application/openmetrics-text;q=0", TEXT), ("application/openmetrics-text;q=-1,text/plain", TEXT),
])
def test_the_format_is_what_the_client_accepts(accept, wanted):
    assert format_for(accept) is wanted


@settings(max_examples=30)
@given(st.text(max_size=200))
def test_any_header_leads_to_a_format(accept):
    assert format_for(accept) in (TEXT, OPEN_METRICS)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=20)
NUMBERS = st.one_of(st.integers(-2**53, 2**53), st.floats(allow_nan=False))


@pytest.mark.parametrize("accept", FORMS)
@settings(max_examples=30)
@given(values=st.dictionaries(st.tuples(TEXTS, TEXTS), NUMBERS, max_size=5), text=TEXTS)
def test_what_the_parser_reads_is_what_was_written(accept, values, text):
    metric = Metric("nsqc_some_bytes", Type.GAUGE, "", text, "bytes", ("topic", "channel"))
    page = family(metric, values.items(), FORMS[accept]) + FORMS[accept].end
    (read,) = pages.families(page.decode(), accept)
    assert {(sample.labels["topic"], sample.labels["channel"]): sample.value for sample in read.samples} == values
    assert (read.name, read.type) == ("nsqc_some_bytes", "gauge")
    if accept == pages.OPEN_METRICS:
        # The parser takes blanks before a text for the separator after the name.
        assert (read.unit, read.documentation.lstrip()) == ("bytes", text.lstrip())


@pytest.mark.parametrize("accept", FORMS)
@pytest.mark.parametrize("kind,name", [(Type.COUNTER, "nsqc_x_total"), (Type.INFO, "nsqc_x_info"),
                                       (Type.GAUGE, "nsqc_x")])
def test_names_follow_the_rules_of_their_types(accept, kind, name):
    form = FORMS[accept]
    (read,) = pages.families((family(Metric("nsqc_x", kind, "", "x"), [((), 1)], form) + form.end).decode(), accept)
    assert [(sample.name, sample.value) for sample in read.samples] == [(name, 1)]
    assert read.type == ("gauge" if kind is Type.INFO and accept == pages.TEXT else kind.value)


def test_numbers_that_are_none():
    page = family(Metric("nsqc_x", Type.GAUGE, "", "x", labels=("a",)),
                  [(("1",), math.inf), (("2",), -math.inf), (("3",), math.nan)], OPEN_METRICS) + b"# EOF\n"
    values = [sample.value for sample in pages.families(page.decode(), pages.OPEN_METRICS)[0].samples]
    assert values[:2] == [math.inf, -math.inf] and math.isnan(values[2])


@pytest.mark.parametrize("accept", FORMS)
@settings(max_examples=30)
@given(st.lists(st.integers(-5, 2**40), max_size=20))
def test_durations_are_counted_below_their_bounds(accept, values):
    durations = Durations()
    for ns in values:
        durations.add(ns)
    form = FORMS[accept]
    metric = Metric("nsqc_x_seconds", Type.HISTOGRAM, "", "x", "seconds")
    (read,) = pages.families((histogram(metric, durations, form) + form.end).decode(), accept)
    counts = {sample.labels["le"]: sample.value for sample in read.samples if sample.name.endswith("_bucket")}
    assert counts == {**{str(bound): sum(ns <= bound * 1e9 for ns in values) for bound in BOUNDS_S}, "+Inf": len(values)}
    rest = {sample.name: sample.value for sample in read.samples if not sample.name.endswith("_bucket")}
    assert rest == {"nsqc_x_seconds_count": len(values),
                    "nsqc_x_seconds_sum": pytest.approx(sum(max(ns, 0) for ns in values) / 1e9)}


def test_names_are_what_prometheus_recommends():
    names = [metric.name for metric in EVERY]
    assert len(set(names)) == len(names)
    for metric in EVERY:
        assert metric.name.startswith("nsqc_") and not metric.name.endswith(("_total", "_info", "_count", "_sum"))
        assert not metric.unit or metric.name.endswith("_" + metric.unit)
        assert metric.unit in ("", "seconds", "bytes")
        assert metric.help.endswith(".")
