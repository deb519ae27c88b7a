"""Hold the code to what is read once: few expressions that need a second reading, and comments where a reader stops.

    python tools/reads.py            says what is beyond a limit; the exit status is 1 then
    python tools/reads.py --rooms    counts by package, too
    python tools/reads.py --places   names the places that are counted, too

A line of code is what `tools/size.py` takes for one. Limits are what the tree has
reached: a change may lower one, and says why where it raises one.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from size import SOURCE, measure, rows_of_code

CONDITIONAL = "conditional expressions"
DENSE = "comprehensions that need a second reading"
TUPLE = "assignments of unrelated values"
LONG = "functions over 50 lines of code"
COMMENTS = "comments"
# At most, in a thousand lines of code.
MOST = {CONDITIONAL: 14.0, DENSE: 3.5, TUPLE: 1.0, LONG: 1.3}
# At least, in a hundred lines of code: on why, a bound, a theorem.
LEAST_COMMENTS = 6.0
LONGEST = 50

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PLAIN = (ast.Name, ast.Attribute, ast.Constant, ast.Subscript)


def is_dense(node):
    """Whether a comprehension has several loops, another one within, or a filter and a computed element."""
    within = [one for one in ast.walk(node) if isinstance(one, COMPREHENSIONS)]
    if len(node.generators) > 1 or len(within) > 1:
        return True
    if isinstance(node, ast.DictComp):
        elements = [node.key, node.value]
    else:
        elements = [node.elt]
    plain = all(isinstance(one, PLAIN) for one in elements)
    return bool(node.generators[0].ifs) and not plain


def is_unrelated(node):
    """Whether one statement gives several names a value each; a swap is one thing."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    names = {ast.unparse(one) for one in target.elts}
    return names != {ast.unparse(one) for one in node.value.elts}


def places(text):
    """Yield what is counted in a file, and the line that it begins in."""
    lines = set(rows_of_code(text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.IfExp):
            yield CONDITIONAL, node.lineno
        elif isinstance(node, COMPREHENSIONS) and is_dense(node):
            yield DENSE, node.lineno
        elif is_unrelated(node):
            yield TUPLE, node.lineno
        elif isinstance(node, FUNCTIONS):
            body = range(node.body[0].lineno, node.end_lineno + 1)
            if len(lines.intersection(body)) > LONGEST:
                yield LONG, node.lineno
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield COMMENTS, token.start[0]


def problems(found, n_lines):
    """Say which limits are passed by what was found in so many lines of code."""
    for name, most in MOST.items():
        rate = 1000 * found[name] / n_lines
        if rate > most:
            yield f"{rate:.1f} {name} in 1,000 lines of code, over {most}"
    rate = 100 * found[COMMENTS] / n_lines
    if rate < LEAST_COMMENTS:
        yield f"{rate:.1f} comments in 100 lines of code, under {LEAST_COMMENTS}"


def row(name, found, n_lines):
    """Return a line of the table by package."""
    rates = [f"{1000 * found[one] / n_lines:8.1f}" for one in MOST]
    return f"{name:12}{n_lines:7}{''.join(rates)}{100 * found[COMMENTS] / n_lines:9.1f}"


def main():
    """Say what is beyond a limit; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rooms", action="store_true")
    parser.add_argument("--places", action="store_true")
    options = parser.parse_args()
    found = {}
    n_lines = Counter()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        package = str(name.parent).partition("/")[0]
        text = path.read_text(encoding="utf-8")
        n_lines[package] += measure(text)[1]
        counts = found.setdefault(package, Counter())
        for what, line in places(text):
            counts[what] += 1
            if options.places and what != COMMENTS:
                sys.stdout.write(f"{name}:{line}: {what}\n")
    total = sum(found.values(), Counter())
    if options.rooms:
        heads = "".join(f"{one.split()[0][:7]:>8}" for one in MOST)
        sys.stdout.write(f"{'':12}{'lines':>7}{heads}{'comments':>9}\n")
        for package in found:
            sys.stdout.write(f"{row(package, found[package], n_lines[package])}\n")
    wrong = list(problems(total, n_lines.total()))
    summary = row("all", total, n_lines.total())
    sys.stdout.write("\n".join(wrong or [summary]) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
