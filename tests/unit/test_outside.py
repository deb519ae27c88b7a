"""JSON from outside: what no program of dppl writes ends in a ValueError, whatever it is."""

import json

import pytest

from dppl._utils.outside import parse_json


@pytest.mark.parametrize(
    ("fits", "beyond"),
    [
        ("9" * 19, "9" * 20),
        ("-" + "9" * 19, "-1" + "0" * 400),
        ("9", "1" + "0" * 5000),
        ("1e308", "1e309"),
        ("0.5", "NaN"),
        ("[0.5]", "[-Infinity]"),
        ("[" * 32 + "]" * 32, "[" * 34 + "]" * 34),
        ('{"a":' * 32 + "1" + "}" * 32, '{"a":' * 34 + "1" + "}" * 34),
        ("[]", "[" * 100_000 + "]" * 100_000),
        ("[]", "[" * 100_000),
        ("[" + "{}," * 1000 + "1]", "[" + "{}," * 2**20 + "1]"),
        ('"a"', '"a'),
        ("1", ""),
    ],
    ids=range(13),
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
