"""JSON from outside: what no program of dppl writes ends in a ValueError, whatever it is."""

import json
from decimal import Decimal

import pytest

from dppl._utils.outside import parse_any, parse_json


@pytest.mark.parametrize(
    ("fits", "beyond"),
    [
        ("9" * 19, "9" * 20),
        ("-" + "9" * 19, "-1" + "0" * 400),
        ("9", "1" + "0" * 5000),
        ("1e308", "1e309"),
        ("0.5", "NaN"),
        ("[0.5]", "[-Infinity]"),
        ("[" * 32 + "]" * 32, "[" * 33 + "]" * 33),
        ('{"a":' * 32 + "1" + "}" * 32, '{"a":' * 34 + "1" + "}" * 34),
        ("[]", "[" * 100_000 + "]" * 100_000),
        ("[]", "[" * 100_000),
        ("[" + "{}," * 1000 + "1]", "[" + "{}," * 2**20 + "1]"),
        ('"a"', '"a'),
        ("1", ""),
        ('{"a": {"b": 1}}', '{"a": 1, "b": 2, "a": 3}'),
        (json.dumps("[,{" * 2**19), json.dumps("[,{" * 2**23)),
    ],
    ids=range(15),
)
@pytest.mark.parametrize("kind", [str, str.encode])
def test_a_text_beyond_the_bounds_is_a_value_error(fits, beyond, kind):
    assert parse_json(kind(fits)) == json.loads(fits)
    with pytest.raises(ValueError, match=r"."):
        parse_json(kind(beyond))


def test_a_long_text_is_not_parsed():
    text = json.dumps("a" * 100)
    assert parse_json(text, len(text)) == "a" * 100
    with pytest.raises(ValueError, match="more than 101 bytes"):
        parse_json(text, len(text) - 1)


def test_records_are_of_any_size_and_say_what_is_written():
    deep = "[" * 100 + "]" * 100
    for text in (deep, "9" * 100, "1.5", "1.0", "-0.0", "1e3", '{"a": 1, "a": 2}'):
        assert parse_any(text) == json.loads(text)
        assert type(parse_any(text)) is type(json.loads(text))
    # Floats would round these to whole numbers.
    for text in ("9007199254740991.4", "1.0000000000000000001", "-1e-400"):
        assert parse_any(text) == Decimal(text)
        assert json.loads(text).is_integer()
    assert parse_any("[NaN, 1e999]")[1] == float("inf")
    for text in ("[" * 100_000, "{", ""):
        with pytest.raises(ValueError, match=r"."):
            parse_any(text)
