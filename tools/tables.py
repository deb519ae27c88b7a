"""Write what pages and schemas repeat of the code: the trusted base, tokens by method, names of methods, codes.

    python tools/tables.py

`tests/meta/test_docs.py` is red while a page differs. New rows are written with what
the code says; their words are yours to change. Numbers of tokens stay as they are
within a twentieth, so that a small edit changes no page.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dppl import reasons
from dppl.kernel.privacy import terms
from dppl.kernel.privacy.terms import Code, Term
from dppl.methods.registry import ENTRIES
from dppl.statement.trust import OUTSIDE

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dppl"
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import size  # noqa: E402

from laws.recipes import FIRST  # noqa: E402

TYPES = {int: "integer", float: "number", str: "string"}
STATEMENT = {
    "statistic": terms.Statistic,
    "mechanism": terms.Mechanism,
    "neighbours": terms.Neighbours,
    "public_input": terms.PublicInput,
    "assumption": terms.Assumption,
    "caveat": terms.Caveat,
}


def near(told: int, found: int) -> bool:
    """Whether a number of tokens may stay."""
    return abs(told - found) <= max(50, told / 20)


def trusted_files() -> dict[str, int]:
    """Return the tokens of each file of the trusted base."""
    paths = [*sorted((SOURCE / "kernel").rglob("*.py"))]
    paths += [SOURCE.joinpath(*one.split(".")).with_suffix(".py") for one in OUTSIDE]
    return {
        path.relative_to(SOURCE).as_posix(): size.measure(path.read_text("utf-8"))[0]
        for path in paths
    }


def trusted_base(table: str) -> str:
    """Return the table of the trusted base, with a row for each folder."""
    left: dict[str, dict[str, int]] = {}
    for path, found in trusted_files().items():
        folder, _, name = path.removesuffix(".py").rpartition("/")
        left.setdefault(f"{folder}/", {})[name] = found
    rows = []
    for row in table.splitlines():
        told = re.match(r"\| `(\S+/)` \| (.*?) \|(.*)\|", row)
        if told is None:
            rows.append(row)
        elif told[1] in left:
            files = with_tokens(left.pop(told[1]), told[3])
            rows.append(f"| `{told[1]}` | {told[2]} | {files} |")
    for folder, files in left.items():
        rows.append(f"| `{folder}` | – | {with_tokens(files, '')} |")
    return "\n".join(rows) + "\n"


def with_tokens(files: dict[str, int], told: str) -> str:
    """Return files with their tokens; what was told of one stays if it is near."""
    before = {name: int(number) for name, number in re.findall(r"`(\w+)` (\d+)", told)}
    listed = []
    for name, found in files.items():
        if name in before and near(before[name], found):
            found = before[name]
        listed.append(f"`{name}` {found}")
    return ", ".join(listed)


def by_method(table: str) -> str:
    """Return the table of tokens that decide releases, with each method in one row."""
    left = {}
    for kind in FIRST:
        code = kind.make().plan(kind.dim).guarantee.trusted_code()
        left[kind.entry.name] = code.tokens_of_releases
    rows = []
    for row in table.splitlines():
        if not row.startswith("| `"):
            rows.append(row)
            continue
        names, page, told = row.strip("| ").split(" | ")
        kept = [one for one in re.findall(r"\w+", names) if one in left]
        found = [left.pop(one) for one in kept]
        if not found:
            continue
        if not all(near(int(told), tokens) for tokens in found):
            told = found[0]
        named = ", ".join(f"`{one}`" for one in kept)
        rows.append(f"| {named} | {page} | {told} |")
    rows += [f"| `{name}` | – | {tokens} |" for name, tokens in left.items()]
    return "\n".join(rows) + "\n"


def names(table: str) -> str:
    """Return the table of the names of methods."""
    head = table.split("\n")[:4]
    rows = [
        f"| `{one.name}` | `{one.method}` | {one.label} |"
        for one in ENTRIES
        if one.method
    ]
    return "\n".join([*head, *rows, ""])


def alternatives(name: str, kind: type[Code]) -> Iterator[dict[str, Any]]:
    """Yield what the terms of a kind may be: codes with the same values are one alternative."""
    by_values: dict[Any, list[str]] = {}
    for code in kind:
        by_values.setdefault(tuple(code.fields.items()), []).append(code.value)
    for fields, codes in by_values.items():
        values = {
            value: {"$ref": f"#/$defs/{name}"} if of is Term else {"type": TYPES[of]}
            for value, of in fields
        }
        yield {
            "type": "object",
            "additionalProperties": False,
            "required": ["code", *values],
            "properties": {"code": {"enum": codes}, **values},
        }


def schema(kinds: dict[str, type[Code]], text: str) -> str:
    """Return a JSON schema with the codes of each kind."""
    for name, kind in kinds.items():
        rows = (f"\n        {json.dumps(one)}" for one in alternatives(name, kind))
        listed = f"[{','.join(rows)}\n      ]"
        text = re.sub(
            rf'(\n    "{name}": {{\n[^[]*"oneOf": ).*?\n      \](?=\n    }})',
            lambda match, listed=listed: match[1] + listed,
            text,
            flags=re.DOTALL,
        )
    return text


def between(marker: str, write: Callable[[str], str], text: str) -> str:
    """Return a page with what `write` makes of the part between two comments."""
    begin, end = (f"<!-- {marker}: {edge} -->" for edge in ("begin", "end"))
    before, _, rest = text.partition(begin)
    table, _, after = rest.partition(end)
    return before + begin + write(table) + end + after


WRITERS = {
    "docs/guarantees.md": partial(between, "trusted base", trusted_base),
    "docs/methods.md": partial(between, "names", names),
    "docs/review/index.md": partial(between, "by method", by_method),
    "docs/skipped.schema.json": partial(schema, {"reason": reasons.SkipReason}),
    "docs/statement.schema.json": partial(schema, STATEMENT),
}


if __name__ == "__main__":
    for name, write in WRITERS.items():
        path = ROOT / name
        path.write_text(write(path.read_text("utf-8")), "utf-8")
