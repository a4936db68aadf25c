"""Paths to routes, by the rules of nsqd's router."""

import pytest

from nsqc.httpd.reply import ApiError, Reply, Request
from nsqc.httpd.router import FREE_ROUTES, ROUTES, resolve


def answer(method, url):
    """The answer of a route that needs no server."""
    request = Request(method.encode(), url.encode())
    route = resolve(request)
    try:
        data = route.handler(None, request)
    except ApiError as error:
        return route.error(error.status, error.text)
    return data if isinstance(data, Reply) else route.reply(data)


def test_every_route_matches_its_own_path():
    for method, routes in ROUTES.items():
        for path, route in routes.items():
            assert resolve(Request(method, path + b"?topic=x")) is route
    for method, routes in FREE_ROUTES.items():
        for path, route in routes.items():
            request = Request(method, path + b"some%20thing?x")
            assert resolve(request) is route
            assert request.param == "some thing"


@pytest.mark.parametrize(("method", "url", "status", "location"), [
    ("GET", "/ping/", 301, "/ping"),
    ("GET", "/Ping", 301, "/ping"),
    ("GET", "//ping", 301, "/ping"),
    ("GET", "/x/../ping", 301, "/ping"),
    ("GET", "/PING/?a=%2F", 301, "/ping?a=%2F"),
    ("GET", "/debug/pprof", 301, "/debug/pprof/"),
    ("GET", "/DEBUG/pprof", 301, "/debug/pprof/"),
    ("GET", "/config/log_level/", 301, "/config/log_level"),
    ("PUT", "/Config/Log%20Level", 307, "/config/Log%20Level"),
    ("POST", "/pub/?topic=t", 307, "/pub?topic=t"),
])
def test_redirects(method, url, status, location):
    reply = answer(method, url)
    assert (reply.status, reply.extra) == (status, f"Location: {location}\r\n")
    assert bool(reply.body) is (method == "GET")


@pytest.mark.parametrize(("method", "url", "allow"), [
    ("POST", "/ping", "GET, OPTIONS"),
    ("get", "/ping", "GET, OPTIONS"),
    ("GET", "/pub", "OPTIONS, POST"),
    ("DELETE", "/config/x", "GET, OPTIONS, PUT"),
    ("HEAD", "/stats", "GET, OPTIONS"),
])
def test_other_methods(method, url, allow):
    reply = answer(method, url)
    assert (reply.status, reply.body, reply.extra) == (405, b'{"message":"METHOD_NOT_ALLOWED"}', f"Allow: {allow}\r\n")
    reply = answer("OPTIONS", url)
    assert (reply.status, reply.body) == (200, b"")
    assert set(allow.split(", ")) <= set(reply.extra.strip().removeprefix("Allow: ").split(", "))


@pytest.mark.parametrize(("method", "url"), [
    ("GET", "/"), ("GET", "/nothing"), ("GET", "/config/"), ("GET", "/config"), ("GET", "/config/a/b"),
    ("OPTIONS", "/nothing"), ("POST", "/pub/more"), ("HEAD", "/Ping"), ("DELETE", "/ping/"), ("CONNECT", "x:1"),
])
def test_not_found(method, url):
    reply = answer(method, url)
    assert (reply.status, reply.body) == (404, b'{"message":"NOT_FOUND"}')
