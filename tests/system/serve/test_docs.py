"""What docs/serve.md shows works when it is pasted, and its numbers are those of the code."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dppl.serve import Limits, open_model
from system.serve.conftest import png, served

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


def blocks(language, page=PAGE):
    return "".join(
        block
        for block in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        if ":8000" in block
    )


def test_the_program(animals, capsys):
    with served([open_model(animals)]) as client:
        program = blocks("python").replace(":8000", f":{client.port}")
        names = {}
        exec(compile(program, "serve.md", "exec"), names)
        (label, probability), nothing = names["predict"](["abc", " "])
    assert (label, nothing) == ("cat", None)
    assert 0.5 < probability <= 1
    assert capsys.readouterr().out.startswith("[('")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_curl(animals, pictures, tmp_path):
    (tmp_path / "scan-1.png").write_bytes(png())
    commands = re.findall(r"^.*curl .*$", blocks("console"), re.MULTILINE)
    assert len(commands) == 3
    found = []
    for command, model in zip(commands, (animals, pictures, animals), strict=True):
        with served([open_model(model)]) as client:
            command = command.replace(":8000", f":{client.port}").replace(
                "curl ", "curl -s --fail "
            )
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=True,
            )
            found.append(done.stdout)
    assert found[0].count('"label"') == 1 + 2
    assert found[1].count('"reason":null') == 1
    assert '"statement":"' in found[2]


def test_defaults_of_limits():
    stated = dict(
        re.findall(r"^\| `--limits (\w+)=[NS]`[^|]*\| ([^|]+) \|", PAGE, re.MULTILINE)
    )
    limits = Limits()
    assert stated == {
        "body_bytes": f"{limits.body_bytes >> 20} MiB",
        "items": str(limits.items),
        "pixels": f"{limits.pixels // 10**6} million",
        "seconds": f"{limits.seconds:g}",
        "requests": str(limits.requests),
    }


def test_the_routes_are_those_of_the_service(animals):
    with served([open_model(animals)]) as client:
        described = client.get("/openapi.json").json()["paths"]
    routes = dict(
        reversed(found.split())
        for found in re.findall(r"^\| `((?:GET|POST) /\S*)`", PAGE, re.MULTILINE)
    )
    assert routes.pop("/openapi.json") == "GET"
    assert routes == {
        path: next(iter(operations)).upper() for path, operations in described.items()
    }
