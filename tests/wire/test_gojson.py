"""JSON by the rules of Go's encoding/json; expected values are those of Go 1.19 for a struct of these fields."""

import json
import random

import pytest

from nsqc.wire.gojson import BOOL, INT32, INT64, STRING, GoJSONError, decode_strings, decode_struct

KINDS = {"client_id": STRING, "snappy": BOOL, "sample_rate": INT32, "msg_timeout": INT64, "k": STRING}
BAD = "�"


@pytest.mark.parametrize("text,found", [
    (b"{}", {}), (b" \t\r\n{ \n} ", {}), (b"null", {}), (b" null\n", {}),
    (b'{"client_id":"a","snappy":true,"sample_rate":7,"msg_timeout":-8}',
     {"client_id": "a", "snappy": True, "sample_rate": 7, "msg_timeout": -8}),
    # keys: case folded, escapes read, the last one wins in any case
    (b'{"CLIENT_ID":"a"}', {"client_id": "a"}), (b'{"Client_Id":"a"}', {"client_id": "a"}),
    (b'{"client_id":"a","CLIENT_ID":"b"}', {"client_id": "b"}), (b'{"CLIENT_ID":"a","client_id":"b"}', {"client_id": "b"}),
    (b'{"sn\\u0061ppy":true}', {"snappy": True}), ('{"ſnappy":true}'.encode(), {"snappy": True}),
    (b'{"\\u017fNAPPY":true}', {"snappy": True}), ('{"\u212a":"kelvin"}'.encode(), {"k": "kelvin"}),
    ('{"snäppy":true}'.encode(), {}), (b'{"snappy\xff":true}', {}), (b'{"snappy ":true}', {}), (b'{"":1}', {}),
    # null keeps the previous value
    (b'{"client_id":"a","client_id":null}', {"client_id": "a"}), (b'{"snappy":null}', {}),
    # strings
    (b'{"client_id":"\xff\xfe"}', {"client_id": BAD * 2}), (b'{"client_id":"a\xe2\x82b"}', {"client_id": f"a{BAD * 2}b"}),
    (b'{"client_id":"\xed\xa0\x80"}', {"client_id": BAD * 3}), (b'{"client_id":"\xc0\x80"}', {"client_id": BAD * 2}),
    (b'{"client_id":"\xf4\x90\x80\x80"}', {"client_id": BAD * 4}), (b'{"client_id":"\xf0\x9f\x98\x80"}', {"client_id": "😀"}),
    (b'{"client_id":"\\ud83d\\ude00"}', {"client_id": "😀"}), (b'{"client_id":"\\ud83d"}', {"client_id": BAD}),
    (b'{"client_id":"\\ude00\\ud83d"}', {"client_id": BAD * 2}), (b'{"client_id":"\\ud83dx"}', {"client_id": f"{BAD}x"}),
    (b'{"client_id":"\\ud83d\\ud83d\\ude00"}', {"client_id": f"{BAD}😀"}),
    (b'{"client_id":"\\ud83d\\u0041"}', {"client_id": f"{BAD}A"}),
    (b'{"client_id":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFf\x7f"}', {"client_id": '"\\/\b\f\n\r\t\0\uffff\x7f'}),
    # integers
    (b'{"msg_timeout":-0}', {"msg_timeout": 0}),
    (b'{"msg_timeout":9223372036854775807}', {"msg_timeout": 2**63 - 1}),
    (b'{"msg_timeout":-9223372036854775808}', {"msg_timeout": -2**63}),
    (b'{"sample_rate":2147483647}', {"sample_rate": 2**31 - 1}),
    (b'{"sample_rate":-2147483648}', {"sample_rate": -2**31}),
    # an unknown value may be any JSON
    (b'{"x":1.5e-7,"y":[1,{"client_id":"no"},[],{}],"z":{"snappy":1},"snappy":true}', {"snappy": True}),
    (b'{"x":' + b"9" * 10_000 + b',"y":1e99999,"z":"\xff"}', {}),
    (b'{"x":' + b"[" * 9999 + b"]" * 9999 + b"}", {}), (b'{"x":' * 10_000 + b"1" + b"}" * 10_000, {}),
])
def test_accepted(text, found):
    assert decode_struct(text, KINDS) == found


@pytest.mark.parametrize("text", [
    # not JSON
    b"", b" ", b"nul", b"nulll", b"NULL", b"{", b"}", b"{}}", b"{} {}", b"{},", b"{}\0", b"\xef\xbb\xbf{}", b"\xff",
    b"{,}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b"{a:1}", b"{'a':1}", b"{1:1}", b'{"a":1;}', b'{"a" 1}',
    b'{"a":[1,]}', b'{"a":[,1]}', b'{"a":[1 2]}', b'{"a":[1}', b'{"a":{"b":1]}', b'{"a":[}', b'{"a":{]}',
    b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}', b'{"a":1e}', b'{"a":1e+}', b'{"a":-}', b'{"a":--1}', b'{"a":0x1}',
    b'{"a":1_0}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":True}', b'{"a":tru}', b'{"a":undefined}',
    b'{"a":"\n"}', b'{"a":"\0"}', b'{"a":"\x1f"}', b'{"a":"}', b'{"a":"\\x41"}', b'{"a":"\\"}', b'{"a":"\\u12"}',
    b'{"a":"\\u12g4"}', b'{"a":"\\U0041"}', b'{"\n":1}', b"{\x0b}", b"{\xc2\xa0}", b"/**/{}", b"{}//",
    b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", b'{"x":' * 10_001 + b"1" + b"}" * 10_001,
    b"[" * 10_001 + b"]" * 10_001, b"[" * 5_000_000, b'{"a":' * 1_000_000, b"[" * 9000,
    # of the wrong kind
    b"[]", b"1", b'"a"', b"true", b"[" * 9000 + b"]" * 9000,
    b'{"client_id":1}', b'{"client_id":true}', b'{"client_id":{}}', b'{"client_id":["a"]}', b'{"client_id":1,"client_id":"a"}',
    b'{"snappy":1}', b'{"snappy":"true"}', b'{"snappy":[]}', b'{"sample_rate":"1"}', b'{"sample_rate":true}',
    b'{"sample_rate":1.0}', b'{"sample_rate":1e1}', b'{"sample_rate":1E0}', b'{"sample_rate":2147483648}',
    b'{"sample_rate":-2147483649}', b'{"msg_timeout":9223372036854775808}', b'{"msg_timeout":-9223372036854775809}',
    b'{"msg_timeout":18446744073709551617}', b'{"msg_timeout":' + b"9" * 1_000_000 + b"}", b'{"msg_timeout":1e400}',
])
def test_refused(text):
    with pytest.raises(GoJSONError):
        decode_struct(text, KINDS)


@pytest.mark.parametrize("text,found", [
    (b"[]", []), (b" [ ] ", []), (b"null", []), (b'["a"]', ["a"]), (b' [ "a" , "\\u00e4\xff" ] ', ["a", f"ä{BAD}"]),
    (b"[null]", [""]), (b'["a",null]', ["a", ""]),
])
def test_arrays_of_strings(text, found):
    assert decode_strings(text) == found


@pytest.mark.parametrize("text", [b"", b"{}", b'"a"', b"1", b"[1]", b'[["a"]]', b"[true]", b'["a",]', b"[,]", b"[", b'["a"',
                                  b'["a"] ["b"]', b'["a" "b"]', b"[" * 9000 + b"]" * 9000, b"[" * 1_000_000])
def test_other_arrays(text):
    with pytest.raises(GoJSONError):
        decode_strings(text)


def test_whatever_python_writes_is_read():
    rng = random.Random(7)

    def any_value(depth=0):
        kinds = [None, True, 1.5, -3, "é\n\"\\😀", "x" * 70] + ([] if depth > 4 else [[], {}])
        chosen = rng.choice(kinds)
        if chosen == []:
            return [any_value(depth + 1) for _ in range(rng.randint(0, 4))]
        if chosen == {}:
            return {f"{n}": any_value(depth + 1) for n in range(rng.randint(0, 4))}
        return chosen

    for _ in range(500):
        text = json.dumps({"a": any_value(), "client_id": "é😀\\", "b": any_value(), "msg_timeout": 5},
                          ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        assert decode_struct(text.encode(), KINDS) == {"client_id": "é😀\\", "msg_timeout": 5}
        for cut in rng.sample(range(len(text)), 5):
            with pytest.raises(GoJSONError):
                decode_struct(text[:cut].encode(), KINDS)


@pytest.mark.parametrize("text", [
    b"{" + b'"a":1,' * 800_000 + b'"a":1}', b"{" + b'"\\u0061":1,' * 450_000 + b'"a":1}',
    b"{" + b'"snappy":true,' * 350_000 + b'"a":1}', b'{"client_id":"' + b"\\u0041" * 800_000 + b'"}',
    b'{"client_id":"' + b"\xff" * 5_000_000 + b'"}', b'{"x":[' + b"1," * 2_500_000 + b"1]}",
])
def test_megabytes_of_one_kind(text):
    decode_struct(text, KINDS)
