"""A first schema of columns by their names and types alone: no value is read, so that none can leak into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

HEAD = """\
# A public schema of columns, for the encoder columns:THIS_FILE. Write it from knowledge of
# the field, and never from the data: bounds read off the records, or a list of the values
# that occur, tell what one person's record is. Lines with "?" must be filled in, and
# columns that shall not be used removed. Forms:
#   age = [0, 120]                                    two bounds; values beyond are cut
#   income = { range = [0, 1_000_000], scale = "log" } amounts and counts with a long tail
#   dose = { range = [0.0, 9.5], decimal = "," }      written as 1,5
#   ward = ["north", "south"]                         the values that there may be
#   stage = { order = ["I", "II", "III"] }            values in order
#   smoker = "yes/no"
#   admitted = [2020-01-01, 2030-12-31]               dates
#   icd = "code"                                      too many values to list
#   note = "text"                                     by minilm, or { text = "hf:NAME" }
#   pdays = { range = [0, 900], missing = [-1] }      what stands for a missing value
"""
_TO_FILL = '"?"'
# What words of a name suggest, the first that fits; bounds are of law, physics or custom.
_LINES = {
    r"id|ids|uuid|email|mail|phone|name|firstname|lastname|surname|key|index": "",
    r"zip|postcode|plz|icd|icd10|icd9|code|codes|sku|atc|ops|cpt|drg": '"code"',
    r"age|years_old": "[0, 120]",
    r"bmi": "[10, 70]",
    r"height|cm": "[40, 230]",
    r"weight|kg": "[1, 300]",
    r"pulse|heartrate|bpm": "[20, 250]",
    r"systolic|diastolic|bp": "[30, 260]",
    r"temperature|temp": "[30, 44]",
    r"glucose|cholesterol|creatinine|crp": '{ range = [0, 1000], scale = "log" }',
    r"percent|pct|percentage": "[0, 100]",
    r"rate|ratio|share|prob|probability|fraction": "[0.0, 1.0]",
    r"lat|latitude": "[-90, 90]",
    r"lon|lng|longitude": "[-180, 180]",
    r"price|amount|income|salary|cost|costs|charge|charges|revenue": (
        '{ range = [0, 1_000_000], scale = "log" }'
    ),
    r"balance|profit": '{ range = [-1_000_000, 1_000_000], scale = "log" }',
    r"count|counts|n|num|number|visits|children|days|minutes|hours": (
        '{ range = [0, 1000], scale = "log" }'
    ),
    r"year": "[1900, 2100]",
    r"month": "[1, 12]",
    r"weekday": "[1, 7]",
    r"hour": "[0, 23]",
    r"day": "[1, 31]",
    r"is|has|flag|smoker|diabetic|deceased": '"yes/no"',
    r"date|at|on|born|birthday|dob|admitted|discharged": "[2000-01-01, 2030-12-31]",
    r"text|note|notes|comment|comments|description|message|body|letter|report": '"text"',
}
# What a type suggests where no word does.
_TYPES = {"bool": '"yes/no"', "date": "[2000-01-01, 2030-12-31]"}


def proposed(columns: Mapping[str, str], left_out: str | None = None) -> Iterator[str]:
    """Yield the lines of a schema for columns, each with its type ("" where it has none), without that of labels."""
    yield HEAD.rstrip()
    for name, kind in columns.items():
        if name == left_out:
            continue
        key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)
        line = _suggested(name, kind)
        if line:
            yield f"{key} = {line}"
        else:
            yield f"# {key} is left out: it names records or persons"


def _suggested(name: str, kind: str) -> str:
    # A type says more than a name: "date_known" may be a truth value.
    for type_, line in _TYPES.items():
        if kind.startswith(type_):
            return line
    # ageAtVisit and age_at_visit have the same words.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    for pattern, line in _LINES.items():
        if set(re.split(r"[^a-z0-9]+", words)) & set(pattern.split("|")):
            return line
    return _TO_FILL
