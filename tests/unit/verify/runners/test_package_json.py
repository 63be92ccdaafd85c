from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.verify.runners.javascript import Script, find_script
from tests.support.fakes import MemorySnapshot


def script(test: str, **scripts: str) -> Script | None:
    package = json.dumps({"scripts": {"test": test, **scripts}})
    return find_script(MemorySnapshot({"package.json": package}))


@pytest.mark.parametrize(
    ("text", "runner", "options", "files"),
    [
        ("jest", "jest", (), ()),
        (
            "eslint . && jest --config a.json --coverage src",
            "jest",
            ("--config", "a.json"),
            ("src",),
        ),
        ("cross-env CI=1 vitest run --dir lib --reporter=dot", "vitest", ("--dir", "lib"), ()),
        ("npx vitest", "vitest", (), ()),
        (
            "mocha -r ts-node/register 'test/**/*.ts'",
            "mocha",
            ("-r", "ts-node/register"),
            ("test/**/*.ts",),
        ),
        ("node_modules/.bin/_mocha --reporter dot", "mocha", (), ()),
        ("mocha -u tdd -R spec -b unit && standard", "mocha", ("-u", "tdd"), ("unit",)),
        ("jest -u --reporters default src", "jest", (), ("src",)),
        ("node --test --test-reporter spec test/a.js", "node", (), ("test/a.js",)),
        ("node --test", "node", (), ()),
        ("ava --verbose", "", (), ()),
        ("./run.sh | tee log", "", (), ()),
    ],
)
def test_the_runner_is_found_in_the_script(
    text: str, runner: str, options: tuple[str, ...], files: tuple[str, ...]
) -> None:
    found = script(text)
    assert found is not None
    assert (found.runner, found.options, found.files) == (runner, options, files)


def test_options_of_node_and_variables_before_the_runner_are_kept() -> None:
    found = script("TZ=UTC node --experimental-vm-modules node_modules/jest/bin/jest.js --ci -i")
    assert found == Script(
        ".",
        "TZ=UTC node --experimental-vm-modules node_modules/jest/bin/jest.js --ci -i",
        "jest",
        ("--experimental-vm-modules",),
        ("-i",),
        (),
        {"TZ": "UTC"},
    )
    by_node = script("node --import tsx --test test/*.ts")
    assert by_node is not None
    assert (by_node.node_options, by_node.files) == (("--import", "tsx"), ("test/*.ts",))


def test_scripts_that_call_scripts_are_followed_and_circles_end() -> None:
    found = script("npm run unit", unit="yarn run:it", **{"run:it": "vitest"})
    assert found is not None
    assert found.runner == "vitest"
    assert script("npm run test") == Script(".", "npm run test")


def test_a_package_without_tests_has_none() -> None:
    assert script('echo "Error: no test specified" && exit 1') is None
    assert script("") is None
    assert find_script(MemorySnapshot({"package.json": "{"})) is None
    assert find_script(MemorySnapshot({"package.json": '{"scripts": []}'})) is None


def test_of_several_packages_a_known_runner_nearest_to_the_root_counts() -> None:
    def package(test: str) -> str:
        return json.dumps({"scripts": {"test": test}})

    files = {
        "package.json": package("lerna run test"),
        "packages/b/package.json": package("jest"),
        "packages/a/package.json": package("jest"),
        "node_modules/x/package.json": package("mocha"),
    }
    found = find_script(MemorySnapshot(files))
    assert found is not None
    assert (found.folder, found.runner) == ("packages/a", "jest")


@settings(deadline=None)
@given(st.text())
def test_any_script_and_any_file_can_be_read(text: str) -> None:
    script(text)
    find_script(MemorySnapshot({"package.json": text}))
