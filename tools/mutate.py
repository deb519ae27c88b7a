"""Plant known faults one by one and see whether the tests notice.

    python tools/mutate.py [--only NAME] [--json FILE]

Each mutant of `tools/mutants.txt` changes one place in a copy of the tree and runs
there the test files that should turn red. A survivor is a promise that no test keeps;
then the exit status is 1. `tests/meta/test_mutants.py` holds the list to the sources.
"""

import argparse
import ast
import builtins
import copy
import difflib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "dppl"
COPIED = (
    ".ci",
    "docs",
    "src",
    "tests",
    "tools",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "justfile",
)
COPIED += ("pyproject.toml",)
KILLED = "killed"
SURVIVED = "SURVIVED"
BROKEN = "BROKEN"
# A fault may make a loop endless. That is no test's merit, so such a mutant counts as
# broken.
LIMIT_S = 600
# `$name` in a pattern, as a name that Python can parse.
ANY = "ANY_"
RUN = "..."


def parts(node: ast.AST) -> list[Any]:
    """Return what a node is made of; arguments and entries each become one list, in which `...` may stand."""
    if isinstance(node, ast.Call):
        return [node.func, [*node.args, *node.keywords]]
    if isinstance(node, ast.Dict):
        return [[list(pair) for pair in zip(node.keys, node.values, strict=True)]]
    return [
        getattr(node, field)
        for field in node._fields
        if field not in ("ctx", "kind", "type_comment")
    ]


def is_run(pattern: Any) -> bool:
    """Whether a part of a list stands for any run of parts: `...`, or `**...` among keywords and entries."""
    if isinstance(pattern, list):
        return len(pattern) == 2 and pattern[0] is None and is_run(pattern[1])
    if isinstance(pattern, ast.keyword):
        return pattern.arg is None and is_run(pattern.value)
    if isinstance(pattern, ast.Expr):
        return is_run(pattern.value)
    return isinstance(pattern, ast.Constant) and pattern.value is ...


def match(pattern: Any, node: Any, found: dict[str, Any]) -> dict[str, Any] | None:
    """Return `found` and what else the `$name` and `...` of the pattern stand for, or None."""
    if isinstance(pattern, ast.Name) and pattern.id.startswith(ANY):
        same = isinstance(node, ast.expr) and (
            pattern.id not in found
            or ast.unparse(found[pattern.id]) == ast.unparse(node)
        )
        return {**found, pattern.id: node} if same else None
    if type(pattern) is not type(node):
        return None
    if isinstance(pattern, ast.AST):
        pattern = parts(pattern)
        node = parts(node)
    if not isinstance(pattern, list):
        return found if pattern == node else None
    if not pattern:
        return None if node else found
    for n in range(len(node) + 1) if is_run(pattern[0]) else ():
        runs = {**found, RUN: [*found.get(RUN, ()), node[:n]]}
        if (done := match(pattern[1:], node[n:], runs)) is not None:
            return done
    now = match(pattern[0], node[0], found) if node and not is_run(pattern[0]) else None
    return None if now is None else match(pattern[1:], node[1:], now)


def build(template: Any, found: dict[str, Any], runs: Iterator[list[Any]]) -> Any:
    """Return the template with what was found in place of its `$name` and `...`."""
    if isinstance(template, list):
        each = (
            next(runs) if is_run(part) else [build(part, found, runs)]
            for part in template
        )
        return [part for run in each for part in run]
    if not isinstance(template, ast.AST):
        return template
    if isinstance(template, ast.Name) and template.id.startswith(ANY):
        node = copy.deepcopy(found.get(template.id, template))
        if hasattr(node, "ctx"):
            node.ctx = template.ctx
        return node
    if isinstance(template, ast.Call):
        func, items = build(parts(template), found, runs)
        named = [item for item in items if isinstance(item, ast.keyword)]
        return ast.Call(func, [item for item in items if item not in named], named)
    if isinstance(template, ast.Dict):
        pairs = build(parts(template)[0], found, runs)
        return ast.Dict([key for key, _ in pairs], [value for _, value in pairs])
    return type(template)(
        **{
            field: build(value, found, runs)
            for field, value in ast.iter_fields(template)
        }
    )


def places(
    node: ast.AST, pattern: Any
) -> Iterator[tuple[Callable[[Any], None], dict[str, Any]]]:
    """Yield what sets each place below a node where the pattern stands, and what was found there."""
    for field, value in ast.iter_fields(node):
        inside = value if isinstance(value, list) else [value]
        for i, part in enumerate(inside):
            if not isinstance(part, ast.AST):
                continue
            several = slice(i, i + len(pattern)) if isinstance(pattern, list) else i
            if (found := match(pattern, inside[several], {})) is not None:
                put = functools.partial(setattr, node, field)
                yield (
                    functools.partial(value.__setitem__, several)
                    if inside is value
                    else put,
                    found,
                )
            yield from places(part, pattern)


def read(path: Path, folder: Path) -> tuple[ast.Module, list[tuple[str, ast.AST]]]:
    """Return the code of a file, and its functions, classes and constants by qualified name."""
    found = []

    def look(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{above}.{child.name}"
                found.append((name, child))
            elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(
                node, ast.Module | ast.ClassDef
            ):
                targets = (
                    child.targets if isinstance(child, ast.Assign) else [child.target]
                )
                inner = [part for target in targets for part in ast.walk(target)]
                found.extend(
                    (f"{above}.{part.id}", child)
                    for part in inner
                    if isinstance(part, ast.Name)
                )
            if not isinstance(
                child, ast.expr
            ):  # which defines nothing, and is most of a file
                look(child, name)

    tree = ast.parse(path.read_text(encoding="utf-8"))
    look(tree, ".".join(path.relative_to(folder).with_suffix("").parts))
    return tree, found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


@functools.cache
def defined(folder: Path) -> dict[str, Path]:
    """Return the file of every qualified name below a folder."""
    return {
        name: path
        for path in sorted(folder.rglob("*.py"))
        for name, _ in read(path, folder)[1]
    }


def names_in(node: ast.AST, *fields: str) -> set[str]:
    """Return the names in these fields of the code."""
    return {getattr(part, field, None) for part in ast.walk(node) for field in fields}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: in the definition `where` the code `old` becomes `new`, and one of `tests` should fail.

    Parameters
    ----------
    name : str
    where : str
        Function, class or constant below src/dppl; as much of its qualified name, from
        the right, as makes it unique.
    number : int
        Which of the places where `old` stands; 0 if there is but one.
    old, new : str
        An expression, or statements. `$name` stands for any expression, `...` in a list
        for any run of its parts.
    tests : tuple of str
        Test files, as paths below the root.
    keyword : str
        Part of the names of the tests to run, where the whole files would take long;
        pytest's -k.
    """

    name: str
    where: str
    number: int
    old: str
    new: str
    tests: tuple[str, ...]
    keyword: str

    def code(self) -> list[Any]:
        """Return the two patterns, parsed."""
        texts = [re.sub(r"\$(\w+)", rf"{ANY}\1", text) for text in (self.old, self.new)]
        try:
            trees = [ast.parse(f"(\n{text}\n)", mode="eval") for text in texts]
        except SyntaxError:
            trees = [ast.parse(text) for text in texts]
        if ast.unparse(trees[0]) == ast.unparse(trees[1]):
            raise ValueError(f"{self.name}: nothing changes")
        return [tree.body for tree in trees]

    def find(self, folder: Path = SOURCES) -> str:
        """Return the whole name of `where`.

        Raises
        ------
        ValueError
            If nothing has that name, or more than one thing.
        """
        found = [
            name
            for name in defined(folder)
            if name == self.where or name.endswith(f".{self.where}")
        ]
        if len(found) == 1:
            return found[0]
        ends = {
            ".".join(name.split(".")[-1 - self.where.count(".") :])
            for name in defined(folder)
        }
        near = ", ".join(difflib.get_close_matches(self.where, ends)) or "nothing"
        raise ValueError(
            f"{self.name}: {self.where} {f'may be any of {found}' if found else f'is gone; near it: {near}'}"
        )

    def apply(self, folder: Path = SOURCES) -> tuple[Path, ast.Module]:
        """Return the file and its faulty code.

        Raises
        ------
        ValueError
            If `old` does not stand in one place, or `new` is no different or has a name
            that is not known there.
        """
        whole = self.find(folder)
        tree, nodes = read(path := defined(folder)[whole], folder)
        old, new = self.code()
        inside = [node for name, node in nodes if name == whole]
        found = [each for node in inside for each in places(node, old)]
        if len(found) < max(1, self.number) or (len(found) > 1 and not self.number):
            raise ValueError(
                f"{self.name}: {self.old!r} stands {len(found)} times in {whole}"
            )
        known = {name.split(".")[-1] for name, _ in nodes} | set(dir(builtins))
        known = known.union(
            *(names_in(node, "id", "arg", "name", "asname") for node in inside)
        )
        put, bound = found[self.number - 1 if self.number else 0]
        after = build(new, bound, iter(bound.get(RUN, ())))
        named = [
            node
            for top in (after if isinstance(after, list) else [after])
            for node in ast.walk(top)
        ]
        own = {
            node.id
            for node in named
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        unknown = (
            {node.id for node in named if isinstance(node, ast.Name)} - own - known
        )
        if unknown:  # which may be imported
            imports = [
                node
                for node in statements(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            unknown = unknown.difference(
                *(names_in(node, "name", "asname") for node in imports)
            )
        if unknown:
            raise ValueError(
                f"{self.name}: {whole} knows no {', '.join(sorted(unknown))}"
            )
        put(after)
        for top in after if isinstance(after, list) else [after]:
            ast.fix_missing_locations(top)
        return path, tree


def table(text: str) -> Iterator[Mutant]:
    """Yield the mutants of a text such as tools/mutants.txt."""
    form = r"([\w-]+): (.+?)(?: -k (\w+))?\n\s+([\w.]+)(?: #(\d+))?:\s(.*)"
    for entry in re.split(
        r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip("\n")
    ):
        if (
            not (read := re.fullmatch(form, entry, re.DOTALL))
            or read[6].count("=>") != 1
        ):
            raise ValueError(f"not a mutant: {entry}")
        name, tests, keyword, where, number, change = read.groups()
        old, new = (textwrap.dedent(side).strip() for side in change.split("=>"))
        tests = tuple(tests.split())
        number = int(number or 0)
        yield Mutant(
            name=name,
            where=where,
            number=number,
            old=old,
            new=new,
            tests=tests,
            keyword=keyword or "",
        )


MUTANTS = tuple(table((ROOT / "tools" / "mutants.txt").read_text(encoding="utf-8")))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutant; `by` is the test that failed, or what went wrong without one."""

    name: str
    where: str
    verdict: str
    by: str
    seconds: float


def judge(status: int, output: str) -> tuple[str, str]:
    """Return the verdict and the test that failed, from pytest's exit status and output.

    Only a test that ran and failed kills a mutant: a module that no longer imports, or
    a keyword that picks no test, proves nothing.
    """
    if status == 0:
        return SURVIVED, ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", output, re.MULTILINE)
    if status == 1 and failed:
        return KILLED, failed[1]
    return (
        BROKEN,
        f"pytest ended with status {status}: {(output.strip().splitlines() or [''])[-1]}",
    )


def copy_tree(folder: Path) -> None:
    """Copy what the tests need; the checkout itself is never changed."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, folder / name)
    # As a mutant is written: the tests pass without a fault, so that what fails with
    # one is not for want of a comment.
    for path in (folder / "src").rglob("*.py"):
        path.write_text(
            ast.unparse(ast.parse(path.read_text(encoding="utf-8"))), encoding="utf-8"
        )


def run_tests(folder: Path, tests: Iterable[str], keyword: str = "") -> tuple[int, str]:
    """Return the exit status and output of pytest in the copy; status 124 is the time limit."""
    # No bytecode: a fault of the same length within the same second would run the old
    # one.
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--tb=no",
    ]
    command += [*(("-k", keyword) if keyword else ()), *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end within {LIMIT_S} s"
    return done.returncode, done.stdout


def try_out(mutant: Mutant, folder: Path) -> Outcome:
    """Plant one fault in the copy, run its tests and take it out again."""
    started = time.perf_counter()
    path, faulty = mutant.apply(folder / "src" / "dppl")
    source = path.read_text(encoding="utf-8")
    path.write_text(ast.unparse(faulty), encoding="utf-8")
    try:
        verdict, by = judge(*run_tests(folder, mutant.tests, mutant.keyword))
    finally:
        path.write_text(source, encoding="utf-8")
    seconds = round(time.perf_counter() - started, 1)
    return Outcome(
        name=mutant.name, where=mutant.where, verdict=verdict, by=by, seconds=seconds
    )


def say(text: str, end: str = "\n") -> None:
    """Write progress at once, also into a pipe."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def main() -> int:
    """Run the command line; return 1 if a mutant survived or the tests fail without one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [mutant.name for mutant in MUTANTS]
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        choices=names,
        help="this mutant; may be repeated",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the outcomes here"
    )
    options = parser.parse_args()
    mutants = [
        mutant for mutant in MUTANTS if not options.only or mutant.name in options.only
    ]
    width = max(len(mutant.name) for mutant in mutants)
    outcomes = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dppl-mutate-") as name:
        folder = Path(name)
        copy_tree(folder)
        if not options.only:
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            say(f"{len(tests)} test files without a fault ... ", end="")
            status, output = run_tests(folder, tests)
            if status:
                say(f"FAIL, so no mutant was tried.\n{output}")
                return 1
            say(f"pass ({time.perf_counter() - started:.1f} s)")
        for number, mutant in enumerate(mutants, 1):
            say(f"{number:2}/{len(mutants)}  {mutant.name:{width}}  ", end="")
            outcomes.append(outcome := try_out(mutant, folder))
            by = (
                f" by {outcome.by}"
                if outcome.verdict == KILLED
                else f" {outcome.by}".rstrip()
            )
            say(f"{outcome.verdict}{by} ({outcome.seconds} s)")
    if options.json:
        options.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n"
        )
    left = [outcome.name for outcome in outcomes if outcome.verdict != KILLED]
    summary = f"{len(outcomes) - len(left)} of {len(outcomes)} mutants killed in {time.perf_counter() - started:.0f} s"
    say(summary + (f"; not killed: {', '.join(left)}" if left else ""))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
