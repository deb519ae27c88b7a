"""Words are for people and codes for programs: each code has one text, and no code reads a text."""

import ast
import contextlib
import json
import re
import string
import warnings
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from dppl import GaussianDP, Ledger, errors, io, reasons, verify
from dppl.cli import main
from dppl.io.skip_report import report_on_source
from dppl.io.tables import shards
from dppl.kernel.privacy import terms
from dppl.kernel.privacy.terms import Caveat, Code, Neighbours, Norm, Term, Unit
from dppl.methods import fit_plan
from dppl.statement import english, words
from dppl.statement.rendering import LANGUAGES
from dppl.training import pipeline
from inside import tensors_of
from laws.recipes import BY_NAME
from laws.streams import learn, stream
from meta.test_layers import MODULES, SOURCE

KINDS = [
    kind
    for kind in (*vars(terms).values(), *vars(reasons).values())
    if isinstance(kind, type) and issubclass(kind, Code) and kind is not Code
]
SAYS = english.SKIP_REASONS[reasons.SkipReason.EMPTY]
# What holds terms or codes, as an attribute and as a name in JSON.
PARTIES = {
    *("statistic", "mechanism", "norm", "unit", "neighbours"),
    *("public_inputs", "not_covered", "assumptions", "assumption"),
    "reason",
}
OF_TEXT = {
    *("startswith", "endswith", "replace", "removeprefix", "removesuffix", "split"),
    *("rsplit", "partition", "rpartition", "find", "rfind", "strip", "lower", "upper"),
}


def names_of(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def problems_of(texts):
    """Yield codes whose texts are missing, left over, or have other values than the code."""
    for kind in KINDS:
        table = texts.get(kind, {})
        for one in {*kind} ^ {*table}:
            yield f"{kind.__name__}.{one.name} must have one text"
        for code, text in table.items():
            if names_of(text) - {"records"} != {*code.fields} or not text:
                values = ", ".join(code.fields)
                yield f"the text of {kind.__name__}.{code.name} must name {values}"


def test_each_code_has_a_text_with_its_values_and_each_text_a_code():
    assert {*english.TEXTS} == {*KINDS}
    assert list(problems_of(english.TEXTS)) == []
    assert english.COUNTED.keys() <= english.STATISTICS.keys()
    assert english.RECORDS.keys() == english.UNITS.keys()
    # Negative controls: a text that is gone, and one that forgets a value.
    fewer = {**english.NORMS}
    del fewer[Norm.L2]
    assert list(problems_of({**english.TEXTS, Norm: fewer})) == [
        "Norm.L2 must have one text"
    ]
    several = Neighbours.PERSON_IN_CLASSES
    silent = {**english.NEIGHBOURS, several: "as at most several records"}
    found = problems_of({**english.TEXTS, Neighbours: silent})
    (one,) = found
    assert one.endswith(f"{several.name} must name max_classes")


TRANSLATED = [one for one in LANGUAGES.values() if one is not english]


def differences(one):
    """Yield what a language lacks, has beyond English, or says with other values."""
    tables = {
        kind.__name__: (english.TEXTS[kind], one.TEXTS[kind]) for kind in one.TEXTS
    }
    for kind, (here, there) in {**tables, "page": (english.PAGE, one.PAGE)}.items():
        yield from (f"{kind}: {name}" for name in {*here} ^ {*there})
        for name in {*here} & {*there}:
            if names_of(here[name]) != names_of(there[name]):
                yield f"{kind}: {name}"
            # Whoever forgot to translate left the English text.
            if here[name] == there[name] and here[name] != "{text}":
                yield f"{kind}: {name}"


@pytest.mark.parametrize("one", TRANSLATED)
def test_a_language_has_all_that_the_page_says_with_the_same_values(one):
    assert {*one.TEXTS} == {terms.PublicInput, terms.Assumption, terms.Caveat}
    assert list(differences(one)) == []


def test_what_a_language_lacks_is_found(monkeypatch):
    """The negative control: a code that is gone, a value that is forgotten, a sentence in English."""
    (german, *_) = TRANSLATED
    caveats = {**german.TEXTS[Caveat], Caveat.PERSON_AT_ALL_PARTIES: "höchstens μ"}
    del caveats[Caveat.LOOK]
    monkeypatch.setattr(german, "TEXTS", {**german.TEXTS, Caveat: caveats})
    monkeypatch.setattr(german, "PAGE", {**german.PAGE, "gdpr": english.PAGE["gdpr"]})
    assert {*differences(german)} == {
        "Caveat: look",
        "Caveat: person_at_all_parties",
        "page: gdpr",
    }


def test_the_page_says_each_sentence_and_no_other():
    """Of those that depend on the unit, the template names the beginning or the end."""
    template = (SOURCE / "statement/templates/dpo.jinja").read_text(encoding="utf-8")
    renderer = (SOURCE / "statement/rendering.py").read_text(encoding="utf-8")
    named = {*re.findall(r'"(\w+)"', template + renderer)}
    units = {"record", "person", *(unit.value for unit in Unit)}
    whole = {f"{start}{unit}" for start in named for unit in units}
    whole |= {f"{unit}{end}" for end in named for unit in units}
    items = {"text", "image", "row", "embedding"}
    assert {*english.PAGE} - items - named - whole == set()
    assert re.findall(r">[^<{]*[a-z]{3}[^<{]*<", template) == []  # no text of its own


@pytest.mark.parametrize("language", LANGUAGES.values())
def test_no_two_codes_of_a_kind_say_the_same(language):
    for table in (*language.TEXTS.values(), language.PAGE):
        assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_plain_words_and_different(kind):
    assert all(re.fullmatch("[a-z][a-z0-9_]*", code.value) for code in kind)
    assert len({code.value for code in kind}) == len(kind)
    for code in kind:
        assert {*code.fields.values()} <= {int, float, str, Term}
        assert (Term in code.fields.values()) == ("of" in code.fields)


def holds(node):
    """Whether an expression reads what holds a code, by attribute or by its name in JSON."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and one.attr in PARTIES:
            return True
        key = one.slice if isinstance(one, ast.Subscript) else None
        if isinstance(key, ast.Constant) and key.value in PARTIES:
            return True
    return False


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def readings_of(source):
    """Yield the lines at which code looks into the text of what should be a code."""
    tree = ast.parse(source)
    each = [
        one for one in ast.walk(tree) if isinstance(one, ast.comprehension | ast.For)
    ]
    bound = {
        one.target.id
        for one in each
        if isinstance(one.target, ast.Name) and holds(one.iter)
    }

    def reads(node):
        return holds(node) or (isinstance(node, ast.Name) and node.id in bound)

    yield from readings_of_errors(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_text, sides)) and any(map(reads, sides)):
                yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if node.func.attr in OF_TEXT and reads(of):
                yield node.lineno
            if isinstance(of, ast.Name) and of.id == "re":
                yield from (node.lineno for one in node.args if reads(one))


OWN_ERRORS = {
    *errors.__all__,
    *("BadRecord", "TooManyPixels", "OtherOptions", "SourceChanged", "Refusal"),
}


def readings_of_errors(tree):
    """Yield the lines at which code that caught an error of dppl looks into its message."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.type is None:
            continue
        caught = {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)}
        if handler.name is None or not caught & OWN_ERRORS:
            continue

        def tells(node, name=handler.name):
            """Whether it is the message: ``str(error)``, or an attribute that holds it."""
            if isinstance(node, ast.Subscript):
                node = node.value
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str":
                return [getattr(one, "id", "") for one in node.args] == [name]
            is_text = isinstance(node, ast.Attribute) and node.attr in (
                "args",
                "message",
            )
            return is_text and getattr(node.value, "id", "") == name

        for node in ast.walk(handler):
            sides = (
                [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            )
            if any(map(tells, sides)):
                yield node.lineno
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func
                if of.attr in OF_TEXT and tells(of.value):
                    yield node.lineno
                if getattr(of.value, "id", "") == "re" and any(map(tells, node.args)):
                    yield node.lineno


@pytest.mark.parametrize(
    "look",
    [
        "str(error) == 'it is empty'",
        "str(folder) in str(error)",
        "str(error).startswith('unusable')",
        "error.args[0].replace(str(path), 'standard input')",
        "re.sub('unusable', '--unusable', str(error))",
    ],
)
@pytest.mark.parametrize("kind", ["BadRecord", "(InputError, ParameterError)"])
def test_a_look_into_a_message_is_found(look, kind):
    """The negative control."""
    line = f"try:\n  work()\nexcept {kind} as error:\n  {{}}"
    assert [*readings_of(line.format(look))]
    assert not [*readings_of(line.format("raise Refusal(str(error)) from None"))]
    assert not [*readings_of(line.format("error.parameter == 'unusable'"))]


def test_the_page_of_the_service_compares_codes():
    """Its script knows the reasons of answers, and not what they say."""
    page = (SOURCE / "serve/page.html").read_text(encoding="utf-8")
    assert re.findall(r"\.(?:reason|message)\s*(?:[=!]==|\.\w+\()", page) == []
    once = 'one.reason === "not sure"'  # the control: what it once did
    assert re.findall(r"\.(?:reason|message)\s*(?:[=!]==|\.\w+\()", once)


def test_no_code_looks_into_a_text():
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in MODULES
        for line in readings_of(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'release.mechanism.startswith("rounded")',
        'one.statistic.replace("records", "persons", 1)',
        'any("several" in text for text in guarantee.not_covered)',
        '[text for text in guarantee.not_covered if text.startswith("several")]',
        'stated["unit"] == "one person"',
        'guarantee.unit == "one person"',
        '"the public rows" in stated["public_inputs"]',
        're.match("number of", release.statistic)',
    ],
)
def test_a_look_into_a_text_is_found(line):
    """The negative control: what the library once did."""
    assert [*readings_of(line)]


@pytest.mark.parametrize(
    "line",
    [
        "one.statistic.code is Statistic.NETWORK_GRADIENTS",
        "guarantee.unit is Unit.PERSON",
        "mechanism.release(x)",
        "x / query.unit",
        'budget == "mu"',
    ],
)
def test_other_code_is_not_found(line):
    assert not [*readings_of(line)]


def test_sentences_are_in_one_file():
    """No other file holds one; it could be compared there, and would be forgotten by a translation."""
    held = set()
    for path in MODULES:
        if path.name not in ("english.py", "german.py", "french.py"):
            held |= {*constants_of(path.read_text(encoding="utf-8"))}
    everything = "\n".join(held)
    long = [
        text
        for language in LANGUAGES.values()
        for table in (*language.TEXTS.values(), language.PAGE)
        for text in table.values()
        if len(text) > 40
    ]
    assert len(long) > 60
    assert [text for text in long if text in everything] == []


def constants_of(source):
    """Yield the strings of a module that are not docstrings."""
    nodes = [*ast.walk(ast.parse(source))]
    documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documented:
            yield node.value


# What is computed does not depend on what is said


def results(folder):
    """Fit, verify and charge, and return all that is no text: hashes of tensors, statements, costs, verdicts."""
    folder.mkdir()
    found = {}
    made = [
        ("SoftmaxPrototypes add-remove", {}),
        ("SoftmaxPrototypes add-remove", {"groups": np.arange(40) // 3}),
        ("MeanPrototypes add-remove", {"groups": np.arange(40) // 3}),
        ("MeanPrototypes replace-one", {}),
    ]
    ledger = {
        unit: Ledger(folder / f"{unit}.db", "wards", GaussianDP(50), unit=unit.value)
        for unit in (Unit.RECORD, Unit.PERSON)
    }
    models = []
    for number, (name, given) in enumerate(made):
        kind = BY_NAME[name]
        X, y = kind.records(40)
        unit = Unit.PERSON if given else Unit.RECORD
        account = ledger[unit] if kind.adjacency == "add-remove" else None
        model = kind.fit(X, y, given={**given, "ledger": account})
        found[f"{number}, checks"] = [
            one.holds for one in verify(model, ledger=account).checks
        ]
        models.append(model)
    kind = BY_NAME["ContinualPrototypes add-remove"]
    models.append(learn(kind, stream(kind)))
    for number, model in enumerate(models):
        digest = sha256()
        for name, content in sorted(tensors_of(model).items()):
            digest.update(name.encode() + content)
        guarantee = model.guarantee_
        found[f"{number}, tensors"] = digest.hexdigest()
        found[f"{number}, statement"] = guarantee.to_dict()
        found[f"{number}, file"] = sha256(model.to_bytes()).hexdigest()
        found[f"{number}, file holds"] = verify(model).holds
    found["spent"] = [account.spent() for account in ledger.values()]
    assert all(value for name, value in found.items() if "file holds" in name)
    found["left"] = [account.left() for account in ledger.values()]
    found["charges"] = [
        [one["mechanism"] for one in account.releases()] for account in ledger.values()
    ]
    return found


@contextlib.contextmanager
def upside_down():
    """Let every text be its code, backwards."""
    turned = {
        kind: {code: code.value[::-1] for code in table}
        for kind, table in english.TEXTS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(english, "TEXTS", turned)
        told = errors.DpplError.told
        patch.setattr(
            errors.DpplError, "told", lambda *given: told(*given).swapcase()[::-1]
        )
        yield


def differ(folder, results):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        as_it_is = results(folder / "upright")
        with upside_down():
            turned = results(folder / "turned")
    return [name for name in as_it_is if as_it_is[name] != turned[name]]


def test_other_words_change_no_tensor_statement_verdict_or_cost(tmp_path):
    assert differ(tmp_path, results) == []
    unit = Unit.PERSON
    with upside_down():
        assert words.text(unit) == "nosrep"  # the control: the words did change


def test_code_that_reads_a_sentence_is_caught(tmp_path, monkeypatch):
    """A planted violation: the caveats of records are found by how they begin."""
    by_code = fit_plan.of_persons

    def by_text(guarantee, *given, **more):
        kept = tuple(
            one
            for one in guarantee.not_covered
            if not words.text(one).startswith("several records of one person")
        )
        found = by_code(guarantee, *given, **more)
        lost = len(kept) < len(guarantee.not_covered)
        back = () if lost else (Term(Caveat.SEVERAL_RECORDS),)
        return replace(found, not_covered=(*found.not_covered, *back))

    monkeypatch.setattr(fit_plan, "of_persons", by_text)
    assert {name.partition(", ")[2] for name in differ(tmp_path, results)} == {
        "statement",
        "file",
    }


# What is skipped, how a run ends and what it leaves does not depend on what is said


def train(folder, *options):
    """Train by the command line, and return its exit code and the files that it leaves."""
    command = ["train", str(folder / "photos"), "--encoder", "pixels"]
    command += ["--classes", str(folder / "classes.txt"), "--options", "random_state=0"]
    out = folder / "m.safetensors"
    with pytest.raises(SystemExit) as stop:
        main.run([*command, "--out", str(out), "--force", *options])
    return stop.value.code, sorted(one.name for one in folder.iterdir())


def decisions(folder):
    """Read, embed and train on records of which some cannot be used; return all that is no text for people."""
    image = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True)
    (folder / "notes.csv").write_text('text,label\n,cat\nabc,dog\n"x"y,cat\nklm,yak\n')
    (folder / "classes.txt").write_text("cat\ndog\n")
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(4):
            place = folder / "photos" / name / f"{number}.png"
            image.new("RGB", (4, 4), (60 * number, 20, 90)).save(place)
    (folder / "photos" / "cat" / "empty.png").write_bytes(b"")
    (folder / "photos" / "dog" / "damaged.png").write_bytes(b"no image")
    source = io.open_source(folder / "notes.csv")
    found = {"check": report_on_source(source, np.array(["cat", "dog"]))}
    budget = "--epsilon", "1", "--delta", "1e-6"
    found["train"] = train(folder, *budget)
    report = (folder / "m.safetensors.private.jsonl").read_text().splitlines()
    found["skipped"] = [json.loads(line) for line in report[1:]]
    found["strict"] = train(folder, *budget, "--unusable", "stop")
    found["weak"] = train(folder, "--epsilon", "50", "--delta", "1e-6")
    found["pure"] = train(folder, "--epsilon", "1")
    (folder / "classes.txt").write_text("cat\n")
    found["unknown label"] = train(folder, *budget)
    return found


def test_other_words_change_no_skip_and_no_end_of_a_run(tmp_path):
    assert differ(tmp_path, decisions) == []
    found = decisions(tmp_path / "control")
    assert [found[one][0] for one in ("train", "strict", "weak", "pure")] == [
        0,
        4,
        2,
        2,
    ]
    assert {one["reason"]["code"] for one in found["check"]["unusable"]} == {
        "empty",
        "misplaced_quote",
    }
    assert {
        one["reason"]["code"]: one["n"] for one in found["skipped"][-1]["skipped"]
    } == {"empty": 1, "unknown_format": 1}


def test_code_that_reads_a_reason_or_a_message_is_caught(tmp_path, monkeypatch):
    """Planted violations: reasons are left out by what they say, and an exit code is found in a message."""
    counts, report = shards.counts_to_list, main.described_error

    def by_text(skipped):
        told = [one for one in counts(skipped) if one["reason"]["code"] != "empty"]
        return told if SAYS in map(words.text, skipped) else counts(skipped)

    monkeypatch.setattr(shards, "counts_to_list", by_text)
    monkeypatch.setattr(pipeline, "counts_to_list", by_text)
    assert differ(tmp_path / "reasons", decisions) == ["skipped"]
    monkeypatch.undo()

    def by_message(error):
        code, line = report(error)
        return (3 if str(error).startswith("epsilon must be") else code), line

    monkeypatch.setattr(main, "described_error", by_message)
    assert differ(tmp_path / "messages", decisions) == ["weak"]
