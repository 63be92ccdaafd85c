"""The script of a package.json, and the reports of the runners that it starts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of, detected, read, require_program

# ------------------------------------------------------------------------------ package.json


def package(test: str, **scripts: str) -> str:
    return json.dumps({"scripts": {"test": test, **scripts}})


def suite(test: str, **scripts: str) -> Suite:
    files = ("a.js", "src/a.js", "unit/a.js")
    return detected({"package.json": package(test, **scripts), **dict.fromkeys(files, "")})


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
        ("ava --verbose", "ava", "", ""),
        ("tsx --test test/a.ts", "node-test", "", "test/a.ts"),
        ("tape -r esm 'test/**/*.js'", "script", "", "test/**/*.js"),
        ("uvu -r esm unit '\\.test\\.js$'", "script", "", "unit"),
        ("borp --timeout 9 -p 'test/*.js'", "node-test", "", ""),
        ("node --test unit/a.js && node --test src/*.js", "node-test", "", "unit/a.js src/*.js"),
        ("jasmine && karma start", "jasmine", "", ""),
        ("nyc --reporter=lcov ts-mocha -p tsconfig.json", "ts-mocha", "-p tsconfig.json", ""),
        (
            "vitest --pool forks --configLoader runner",
            "vitest",
            "--pool forks --configLoader runner",
            "",
        ),
        ("node test/index.js", "script", "", "test/index.js"),
        ("node scripts/test.js", "npm", "npm test --silent", ""),
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


def test_files_that_the_scripts_patterns_leave_out_are_no_targets() -> None:
    files = {
        "package.json": package("run-s lint unit:*", **{"unit:node": "mocha 'test/unit/**/*.js'"}),
        "test/unit/core/Axios.js": "",
        "test/browser/x.spec.js": "",
    }
    found = detected(files)
    targets = registry.runner_of(found).targets(
        found, [*files, "test/browser/new.js"], MemorySnapshot(files)
    )
    assert targets == ("test/unit/core/Axios.js", "test/browser/new.js")


def test_the_runner_that_a_program_of_the_project_hides_is_guessed() -> None:
    package = json.dumps({"scripts": {"test": "npx jake test"}, "devDependencies": {"mocha": "9"}})
    files = {"package.json": package, "jakefile.js": "exec('bin/mocha -u tdd lib')", "a.js": ""}
    found = detected(files)
    assert (found.runner, found.argv) == ("mocha", ("-u", "tdd", "--timeout", "60000"))
    assert detected({**files, "jakefile.js": "", ".mocharc.yml": ""}).runner == "mocha"
    assert detected({**files, "jakefile.js": ""}).runner == "npm"
    assert detected({**files, "package.json": package.replace("mocha", "x")}).runner == "npm"


@pytest.mark.parametrize(
    ("test", "path", "text"),
    [
        ("vitest", "vitest.config.ts", "test: { include: ['lib/**/*.{test,spec}.?(c|m)[jt]s'] }"),
        ("jest", "jest.config.js", 'testMatch: ["<rootDir>/lib/**/?(*.)+(spec|test).[jt]s?(x)"]'),
        ("mocha", ".mocharc.yml", "spec:\n  - lib/**/*.test.js\n"),
        ("ava", "ava.config.js", "files: ['lib/**/*.test.js', '!lib/x/**']"),
    ],
)
def test_test_files_are_those_of_the_runners_configuration(test: str, path: str, text: str) -> None:
    tests = dict.fromkeys(("lib/a.test.js", "bench/b.test.js"), "")
    files = {"package.json": package(test), path: text, **tests}
    found = detected(files)
    snapshot = MemorySnapshot(files)
    assert registry.runner_of(found).targets(found, [*tests], snapshot) == ("lib/a.test.js",)


def test_what_a_script_builds_is_built_first_and_its_files_run_where_they_are_built() -> None:
    files = {
        "package.json": package("npm run build && node --test dist/test", build="tsc"),
        "tsconfig.json": '{"compilerOptions": {"outDir": "./dist",}, /* all */ "include": ["*"]}',
        "src/a.ts": "",
        "test/a.test.ts": "",
    }
    found = detected(files)
    runner = registry.runner_of(found)
    assert runner.targets(found, ["test/a.test.ts"], MemorySnapshot(files)) == (
        "dist/test/a.test.js",
    )
    assert command_of(found).environment["PATCHSHOT_BUILD"] == "tsc"
    bundled = suite("npm run build && mocha", build="node scripts/build.js && node lib/a.js")
    assert command_of(bundled).environment["PATCHSHOT_BUILD"] == "node scripts/build.js"
    linted = suite("npm run lint && mocha", lint="npm run types", types="tsc")
    assert "PATCHSHOT_BUILD" not in command_of(linted).environment
    lines = [
        {"event": "begin"},
        {"event": "result", "id": "dist/test/a.test.js::x", "outcome": "passed"},
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in (*lines, {"event": "finish"}))
    report = f"\x1e\t2\na.ts(1,1): error TS2304\n\x1e.\n{text}".encode()
    run = read(found, report=report, exit_code=0)
    assert run.ended == "exited"
    assert run.outcomes == {
        "package.json::the build step": Outcome.ERROR,
        "test/a.test.ts::x": Outcome.PASSED,
    }
    assert read(bundled, report=b"\x1e\t0\nbuilt\n\x1e.\t1\n", exit_code=1).outcomes == {}


def test_the_package_of_the_change_counts_and_a_command_is_read_for_its_runner() -> None:
    files = {
        "package.json": package("npm test --workspaces"),
        "packages/a/package.json": package("jest"),
        "packages/b/package.json": package("vitest"),
        "packages/b/src/x.ts": "",
    }
    assert detected(files, "packages/b/src/x.ts").cwd == "packages/b"
    named = detected(files, test_cmd="npx mocha test/a.js --grep x")
    assert (named.runner, named.argv, registry.selects(named)) == ("mocha", ("--grep", "x"), False)


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


# ----------------------------------------------------------------------------------- reports

JEST = Suite("jest", "", settings={"files": "", "node-options": ""})

# In the shape that jest 30 and vitest 4 write.
REPORT = {
    "success": False,
    "wasInterrupted": False,
    "testResults": [
        {
            "name": "/w/src/sum.test.js",
            "status": "failed",
            "message": "",
            "assertionResults": [
                {"ancestorTitles": ["sum"], "title": "adds", "status": "passed"},
                {
                    "ancestorTitles": ["sum", "odd"],
                    "title": "breaks",
                    "status": "failed",
                    "failureMessages": ["Error: expected 3"],
                },
                {"ancestorTitles": ["", "sum"], "title": "later", "status": "todo"},
                {"ancestorTitles": [], "title": "off", "status": "pending"},
            ],
        },
        {
            "name": "/w/src/broken.test.js",
            "status": "failed",
            "message": "Cannot find module './x'",
            "assertionResults": [],
        },
    ],
}

OUTCOMES = {
    "src/broken.test.js": Outcome.ERROR,
    "src/sum.test.js::off": Outcome.SKIPPED,
    "src/sum.test.js::sum > adds": Outcome.PASSED,
    "src/sum.test.js::sum > later": Outcome.SKIPPED,
    "src/sum.test.js::sum > odd > breaks": Outcome.FAILED,
}


def collected(report: object) -> bytes:
    return b"\x1e./.patchshot-report.json\n" + json.dumps(report).encode() + b"\n"


def test_the_json_of_jest_and_vitest_is_read_by_file_and_title() -> None:
    for name in ("jest", "vitest"):
        suite = Suite(name, "")
        run = read(suite, report=collected(REPORT), exit_code=1)
        assert (run.ended, run.outcomes) == ("exited", OUTCOMES)
        assert run.failures["src/sum.test.js::sum > odd > breaks"] == "Error: expected 3"
        assert "Cannot find module" in run.failures["src/broken.test.js"]
        assert run.channels.read == ("report", "exit code")


def test_ids_are_paths_of_the_tree_for_a_package_in_a_folder() -> None:
    report = {"testResults": [{**REPORT["testResults"][0], "name": "/w/web/a.test.js"}]}  # type: ignore[index]
    suite = Suite("jest", "", cwd="web")
    run = read(suite, report=collected(report), exit_code=1)
    assert "web/a.test.js::sum > adds" in run.outcomes
    assert command_of(suite).cwd == "web"


def test_a_clean_exit_that_hides_a_failure_or_has_no_report_is_told() -> None:
    assert read(JEST, report=collected(REPORT), exit_code=0).ended == "inconsistent"
    assert read(JEST, exit_code=0).ended == "incomplete"
    assert read(JEST, report=b"\x1e./x\n{", exit_code=0).ended == "incomplete"
    refused = read(JEST, stderr=b"jest: not found", exit_code=127)
    assert (refused.ended, refused.outcomes) == ("exited", {})
    assert "not found" in refused.output_tail
    broken = collected({**REPORT, "wasInterrupted": True})
    assert read(JEST, report=broken, exit_code=1).ended == "incomplete"


def each(*runs: tuple[str, int, str]) -> bytes:
    return b"".join(f"\x1e{file}\t{code}\n{text}\n".encode() for file, code, text in runs)


def test_mocha_is_read_file_by_file_and_one_that_cannot_be_loaded_is_an_error() -> None:
    test = {"err": {}}
    failed = {**test, "fullTitle": "sum breaks", "err": {"stack": "AssertionError: 1 == 2"}}
    passed, pending = {**test, "fullTitle": "sum adds"}, {**test, "fullTitle": "sum off"}
    report = {
        "tests": [passed, failed, pending],
        "passes": [passed],
        "failures": [failed],
        "pending": [pending],
    }
    runs = ("test/a.js", 1, json.dumps(report)), ("karma.js", 1, "Error: window is not defined")
    run = read(Suite("mocha", ""), exit_code=1, report=each(*runs))
    assert (run.ended, run.outcomes) == (
        "exited",
        {
            "karma.js": Outcome.ERROR,
            "test/a.js::sum adds": Outcome.PASSED,
            "test/a.js::sum breaks": Outcome.FAILED,
            "test/a.js::sum off": Outcome.SKIPPED,
        },
    )
    assert "1 == 2" in run.failures["test/a.js::sum breaks"]
    assert "window" in run.failures["karma.js"]


TAP = """TAP version 13
# Subtest: test/a.js
    # Subtest: outer
        ok 1 - one
        not ok 2 - two
          ---
          diff: "-2"
          ...
    not ok 1 - outer # time=3ms
    ok 2 - off # SKIP
not ok 1 - test/a.js # time=9ms
"""


def test_tap_is_read_with_the_names_above_a_result() -> None:
    run = read(Suite("tap", ""), report=each(("test/a.js", 1, TAP)), exit_code=1)
    assert run.outcomes == {
        "test/a.js::off": Outcome.SKIPPED,
        "test/a.js::outer > one": Outcome.PASSED,
        "test/a.js::outer > two": Outcome.FAILED,
    }
    assert "diff" in run.failures["test/a.js::outer > two"]
    timed = read(Suite("tap", ""), report=each(("a.js", 0, "ok 1 - x ms=0.34371899\n")))
    assert list(timed.outcomes) == ["a.js::x ms=#"]
    tape = "# clamps\nok 1 above\nnot ok 2 below\n# tests 2\n"
    runs = ("a.js", 1, tape), ("b.js", 0, "done"), ("c.js", 1, "Error: no")
    run = read(Suite("script", ""), report=each(*runs), exit_code=1)
    assert run.outcomes == {
        "a.js::clamps > above": Outcome.PASSED,
        "a.js::clamps > below": Outcome.FAILED,
        "b.js": Outcome.PASSED,
        "c.js": Outcome.ERROR,
    }


def test_no_command_is_a_shell_string_made_of_a_file_name() -> None:
    evil = "a; touch x.test.js"
    command = command_of(JEST, evil)
    assert command.argv[0] == "/bin/sh"
    assert command.argv[1].endswith("/patchshot_collect.sh")
    assert evil in command.argv
    assert "-c" not in command.argv


NODE = {
    "package.json": json.dumps({"scripts": {"test": "node --test"}}),
    "a.test.js": """
const test = require('node:test');
const assert = require('node:assert');
test('adds', () => {});
test('breaks', () => assert.equal(1, 2));
test('off', { skip: true }, () => {});
test('later', { todo: true }, () => { throw new Error('not yet'); });
test.describe('outer', () => { test.it('inner', () => {}); });
test('parent', async (t) => { await t.test('child', () => { throw new Error('boom'); }); });
""",
    "plain.test.js": "require('node:assert')(true);",
    "dies.test.js": "throw new Error('at import');",
}


def test_nodes_own_runner_reports_each_test_of_each_file(tmp_path: Path) -> None:
    require_program("node")
    project = Project(NODE, tmp_path)
    run = project.run(["a.test.js", "plain.test.js", "dies.test.js"])
    assert run.ended == "exited", run.output_tail
    assert run.outcomes == {
        "a.test.js::adds": Outcome.PASSED,
        "a.test.js::breaks": Outcome.FAILED,
        "a.test.js::later": Outcome.SKIPPED,
        "a.test.js::off": Outcome.SKIPPED,
        "a.test.js::outer > inner": Outcome.PASSED,
        "a.test.js::parent": Outcome.FAILED,
        "a.test.js::parent > child": Outcome.FAILED,
        "dies.test.js": Outcome.ERROR,
        "plain.test.js": Outcome.PASSED,
    }
    assert "boom" in run.failures["a.test.js::parent > child"]
    assert list(project.run(["plain.test.js"]).outcomes) == ["plain.test.js"]


def test_a_runner_of_the_projects_packages_is_found_and_its_file_collected(tmp_path: Path) -> None:
    """A stand-in for jest: it writes the file that it is told to, as jest does."""
    require_program("node")
    program = f"""#!/usr/bin/env node
const options = process.argv.slice(2);
const file = options.find((o) => o.startsWith('--outputFile=')).slice('--outputFile='.length);
const report = {json.dumps(REPORT)};
for (const one of report.testResults) one.name = one.name.replace('/w', process.cwd());
console.log('asked for', options.filter((o) => !o.startsWith('--output')).join(' '));
console.log('reports to', process.env.SANDBOX_REPORT);
require('fs').writeFileSync(file, JSON.stringify(report));
process.exitCode = 1;
"""
    files = {
        "package.json": json.dumps({"scripts": {"test": "jest --config x.json"}}),
        "src/sum.test.js": "",
        ".patchshot-report.json": "a forged one",
    }
    binaries = tmp_path / "node_modules" / ".bin"
    binaries.mkdir(parents=True)
    (binaries / "jest").write_text(program)
    for path in (binaries / "jest", binaries, binaries.parent, tmp_path):
        path.chmod(0o755)
    run = Project(files, tmp_path).run(["src/sum.test.js"])
    assert (run.ended, run.outcomes) == ("exited", OUTCOMES), run.output_tail
    assert "--runTestsByPath src/sum.test.js" in run.output_tail
    assert "--config x.json" in run.output_tail
    assert "reports to undefined" in run.output_tail


def test_a_script_that_nothing_is_known_of_counts_as_one_test(tmp_path: Path) -> None:
    require_program("npm", "node")
    package = json.dumps({"scripts": {"test": "node check.js"}})
    for code, outcome in ((0, Outcome.PASSED), (3, Outcome.FAILED)):
        files = {"package.json": package, "check.js": f"process.exit({code})"}
        run = Project(files, tmp_path).run()
        assert (run.ended, run.outcomes) == ("exited", {"command": outcome}), run.output_tail
