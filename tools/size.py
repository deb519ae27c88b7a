"""Hold each package of dppl to its number of tokens of code.

Comments and docstrings are free, and density gains nothing. A change that needs more
raises the budget here, where a reviewer looks.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "dppl"
# Tokens of code by package; "." is what lies in none.
BUDGET = {
    ".": 4850,
    "_utils": 4750,
    "audit": 7350,
    "cli": 24300,
    "continual": 7000,
    "encoders": 20450,
    "evaluation": 12350,
    "export": 6750,
    "federation": 12950,
    "finetune": 18050,
    "io": 31900,
    "kernel": 66400,
    "lab": 57300,
    "methods": 27000,
    "planning": 5500,
    "prediction": 7800,
    "serve": 7100,
    "statement": 15950,
    "training": 10900,
}
# One statement a line, so that a reader need not take a line apart.
TOKENS_A_LINE = 7.67
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def rows_of_code(source):
    """Return the line of each token of a file: of code alone, without docstrings, comments and layout."""
    documentation = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            documentation.update(range(first.lineno, first.end_lineno + 1))
    return [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT and token.start[0] not in documentation
    ]


def measure(source):
    """Count the tokens of a file, and the lines that they are on."""
    rows = rows_of_code(source)
    return len(rows), len(set(rows))


def count(root=SOURCE):
    """Count tokens by package, and the lines of all."""
    tokens = {}
    n_lines = 0
    for path in sorted(root.rglob("*.py")):
        package = str(path.relative_to(root).parent).partition("/")[0]
        found, lines = measure(path.read_text(encoding="utf-8"))
        tokens[package] = tokens.get(package, 0) + found
        n_lines += lines
    return tokens, n_lines


def problems(tokens, n_lines, budget):
    """Say what is too large, and by how much."""
    for package, found in tokens.items():
        allowed = budget.get(package, 0)
        if found > allowed:
            yield f"{package} has {found} tokens, over its budget of {allowed}"
    for package in budget.keys() - tokens.keys():
        yield f"{package} is in the budget, but is no package"
    density = sum(tokens.values()) / n_lines
    if density > TOKENS_A_LINE:
        yield f"{density:.2f} tokens a line of code, over {TOKENS_A_LINE}"


def main():
    """Say what is too large; return the exit status."""
    tokens, n_lines = count()
    total = sum(tokens.values())
    wrong = list(problems(tokens, n_lines, BUDGET))
    summary = f"{total} tokens of code, {total / n_lines:.2f} a line"
    sys.stdout.write("\n".join(wrong or [summary]) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
