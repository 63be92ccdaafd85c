from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.verify import Suite
from tests.support.runners import detected


def package(test: str, **scripts: str) -> str:
    return json.dumps({"scripts": {"test": test, **scripts}})


def suite(test: str, **scripts: str) -> Suite:
    return detected({"package.json": package(test, **scripts), "a.js": ""})


@pytest.mark.parametrize(
    ("text", "runner", "options", "files"),
    [
        ("jest", "jest", "", ""),
        ("eslint . && jest --config a.json --coverage src", "jest", "--config a.json", "src"),
        ("cross-env CI=1 vitest run --dir lib --reporter=dot", "vitest", "--dir lib", ""),
        ("npx vitest", "vitest", "", ""),
        (
            "mocha -r ts-node/register 'test/**/*.ts'",
            "mocha",
            "-r ts-node/register",
            "test/**/*.ts",
        ),
        ("node_modules/.bin/_mocha --reporter dot", "mocha", "", ""),
        ("mocha -u tdd -R spec -b unit && standard", "mocha", "-u tdd", "unit"),
        ("jest -u --reporters default src", "jest", "", "src"),
        ("node --test --test-reporter spec test/a.js", "node-test", "", "test/a.js"),
        ("node --test", "node-test", "", ""),
        ("ava --verbose", "npm", "npm test --silent", ""),
        ("./run.sh | tee log", "npm", "npm test --silent", ""),
        ("npm run test", "npm", "npm test --silent", ""),  # a circle
    ],
)
def test_the_runner_is_found_in_the_script(
    text: str, runner: str, options: str, files: str
) -> None:
    found = suite(text)
    assert (found.runner, " ".join(found.argv)) == (runner, options)
    assert shlex.split(found.settings.get("files", "")) == files.split()


def test_options_of_node_and_variables_before_the_runner_are_kept() -> None:
    found = suite("TZ=UTC node --experimental-vm-modules node_modules/jest/bin/jest.js --ci -i")
    assert found == Suite(
        "jest",
        "package.json runs jest for its tests",
        ("-i",),
        environment={"TZ": "UTC"},
        settings={"files": "", "node-options": "--experimental-vm-modules"},
    )
    by_node = suite("node --import tsx --test test/*.ts")
    assert by_node.settings == {"files": "'test/*.ts'", "node-options": "--import tsx"}


def test_scripts_that_call_scripts_are_followed() -> None:
    assert suite("npm run unit", unit="yarn run:it", **{"run:it": "vitest"}).runner == "vitest"


@pytest.mark.parametrize(
    "text",
    [package('echo "Error: no test specified" && exit 1'), package(""), "{", '{"scripts": []}'],
)
def test_a_package_without_tests_has_none(text: str) -> None:
    assert (
        detected({"package.json": text, "a.js": ""}).why == "no test of the project was recognised"
    )


def test_of_several_packages_a_known_runner_nearest_to_the_root_counts() -> None:
    files = {
        "package.json": package("lerna run test"),
        "packages/b/package.json": package("jest"),
        "packages/a/package.json": package("jest"),
        "node_modules/x/package.json": package("mocha"),
        "a.js": "",
    }
    found = detected(files)
    assert (found.cwd, found.runner) == ("packages/a", "jest")


@settings(deadline=None)
@given(st.text())
def test_any_script_and_any_file_can_be_read(text: str) -> None:
    suite(text)
    detected({"package.json": text, "a.js": ""})
