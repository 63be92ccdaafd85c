from __future__ import annotations

from pathlib import Path

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of, read, require_program

FILES = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": """
pub fn add(a: i32, b: i32) -> i32 { a + b }

/// ```
/// assert_eq!(sums::twice(2), 4);
/// ```
pub fn twice(a: i32) -> i32 { a * 2 }

#[cfg(test)]
mod tests {
    #[test]
    fn adds() { assert_eq!(super::add(1, 1), 2); }
    #[test]
    fn breaks() { assert_eq!(super::add(1, 1), 3); }
    #[test]
    #[ignore = "later"]
    fn off() {}
    #[test]
    #[should_panic]
    fn panics() { panic!("as it should"); }
}
""",
    "tests/whole.rs": """
#[test]
fn works() { println!("test noise ... ok"); assert_eq!(sums::add(1, 2), 3); }
""",
}

OUTCOMES = {
    "doc sums::src/lib.rs - twice (line 4)": Outcome.PASSED,
    "src/lib.rs::tests::adds": Outcome.PASSED,
    "src/lib.rs::tests::breaks": Outcome.FAILED,
    "src/lib.rs::tests::off": Outcome.SKIPPED,
    "src/lib.rs::tests::panics": Outcome.PASSED,
    "tests/whole.rs::works": Outcome.PASSED,
}

# As libtest and cargo print it.
OUTPUT = b"""   Compiling sums v0.1.0 (/w)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.32s
     Running unittests src/lib.rs (target/debug/deps/sums-0123456789abcdef)

running 2 tests
test tests::adds ... ok
test tests::breaks ... FAILED

failures:

---- tests::breaks stdout ----
thread 'tests::breaks' panicked at src/lib.rs:14:19:
assertion `left == right` failed

failures:
    tests::breaks

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `--lib`
"""


def suite_of(files: dict[str, str]) -> Suite:
    return registry.detect(MemorySnapshot(files), None)


def test_libtests_text_is_read_with_what_failures_say() -> None:
    run = read(suite_of(FILES), stdout=OUTPUT, exit_code=101)
    assert (run.ended, run.outcomes) == (
        "exited",
        {"src/lib.rs::tests::adds": Outcome.PASSED, "src/lib.rs::tests::breaks": Outcome.FAILED},
    )
    assert "left == right" in run.failures["src/lib.rs::tests::breaks"]
    assert "failures:" not in run.failures["src/lib.rs::tests::breaks"]


def test_a_program_that_ends_early_or_counts_otherwise_is_told() -> None:
    cut = OUTPUT.partition(b"test result")[0]
    assert read(suite_of(FILES), stdout=cut, exit_code=101).ended == "incomplete"
    forged = OUTPUT.replace(b"test tests::breaks ... FAILED", b"test tests::breaks ... ok")
    assert read(suite_of(FILES), stdout=forged, exit_code=101).ended == "incomplete"
    assert read(suite_of(FILES), stdout=OUTPUT, exit_code=0).ended == "inconsistent"
    twice = OUTPUT + b"test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\ntest x ... ok\n"
    assert read(suite_of(FILES), stdout=twice, exit_code=101).ended == "incomplete"


WORKSPACE = {
    "Cargo.toml": '[workspace]\nmembers = ["a", "b"]\n',
    "a/Cargo.toml": '[package]\nname = "a-one"\n',
    "a/src/lib.rs": "",
    "a/tests/it.rs": "",
    "b/Cargo.toml": '[package]\nname = "b"\n',
    "b/src/main.rs": "",
    "b/tests/it.rs": "",
    "b/tests/more/main.rs": "",
}


def test_packages_and_kinds_are_the_targets() -> None:
    suite = suite_of(WORKSPACE)
    targets = registry.runner_of(suite).targets

    def of(*paths: str) -> tuple[str, ...]:
        return targets(suite, paths, MemorySnapshot(WORKSPACE))

    assert of("a/src/lib.rs", "a/src/deep/x.rs") == ("--package=a-one", "--lib")
    assert of("b/src/main.rs") == ("--package=b", "--bins")
    assert of("a/tests/it.rs", "b/tests/more/main.rs") == (
        "--package=a-one",
        "--package=b",
        "--test=it",
        "--test=more",
    )
    assert of("x.py", "outside.rs") == ()


def test_a_file_that_only_one_package_has_is_named_by_its_path() -> None:
    def running(path: str, crate: str) -> bytes:
        head = f"     Running {path} (target/debug/deps/{crate}-0123456789abcdef)\n"
        total = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
        return (head + "running 1 test\ntest x ... ok\n" + total).encode()

    output = (
        running("unittests src/lib.rs", "a_one")
        + running("unittests src/main.rs", "b")
        + running("tests/it.rs", "it")
        + running("tests/more/main.rs", "more")
    )
    run = read(suite_of(WORKSPACE), stdout=output)
    assert list(run.outcomes) == [
        "a/src/lib.rs::x",
        "b/src/main.rs::x",
        "b/tests/more/main.rs::x",
        "it tests/it.rs::x",
    ]
    assert run.ended == "exited"
    new = read(suite_of(FILES), stdout=running("tests/reproduction.rs", "reproduction"))
    assert list(new.outcomes) == ["tests/reproduction.rs::x"]  # a file that the base has not


def test_a_test_program_that_does_not_compile_is_an_error() -> None:
    output = b"""\
error[E0425]: cannot find function `fixed` in this scope
error: could not compile `sums` (test "whole") due to 1 previous error
"""
    run = read(suite_of(FILES), stdout=output, exit_code=101)
    assert (run.ended, run.outcomes) == ("exited", {"tests/whole.rs": Outcome.ERROR})
    assert "`fixed`" in run.failures["tests/whole.rs"]


def test_nothing_is_fetched() -> None:
    command = command_of(suite_of(FILES))
    assert "--offline" in command.argv
    assert command.environment["CARGO_NET_OFFLINE"] == "true"


def test_cargo_itself(tmp_path: Path) -> None:
    require_program("cargo")
    project = Project(FILES, tmp_path)
    run = project.run(seconds=120)
    assert (run.ended, run.outcomes) == ("exited", OUTCOMES), run.output_tail
    assert "left == right" in run.failures["src/lib.rs::tests::breaks"]


def test_cargo_lacks_a_package(tmp_path: Path) -> None:
    require_program("cargo")
    manifest = FILES["Cargo.toml"] + '[dependencies]\nsurely-not-there-at-all = "1"\n'
    run = Project({**FILES, "Cargo.toml": manifest}, tmp_path).run()
    assert (run.outcomes, run.exit_code) == ({}, 101)
    assert "surely-not-there-at-all" in run.output_tail
