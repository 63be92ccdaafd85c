from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from agent.errors import ConfigurationError
from agent.training.encoder_data import (
    Document,
    Example,
    Pool,
    make_batch,
    make_trials,
    pair_files,
    query_of,
    read_examples,
    read_issues,
    training_query,
)
from agent.training.pairs import FunctionText, Pair, write_pairs
from agent.types import ChunkKind


def document(name: str, text: str = "") -> Document:
    return Document(f"m.py:{name}", text or f"def {name}", (text or name).encode())


def example(
    number: int, repo: str = "o/one", right: Iterable[Document] = (), wrong: Iterable[Document] = ()
) -> Example:
    positives = tuple(right) or (document(f"f{number}"),)
    return Example(repo, str(number), f"Issue {number}\n\ntext", "", positives, tuple(wrong))


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def pair(repo: str, number: int, *, fix: bool = True) -> Pair:
    function = FunctionText(
        path="m.py", symbol="C.run", kind=ChunkKind.METHOD, start=1, end=2, text="def run(): ..."
    )
    other = function.model_copy(update={"symbol": "C.stop", "text": "def stop(): ..."})
    return Pair(
        repo=repo,
        commit=f"{number:040x}",
        parent="0" * 40,
        subject=f"Fix number {number}",
        body="It was wrong.",
        fix=fix,
        test_added="assert run()",
        names_in_message=(),
        functions=(function,),
        negatives=(other,),
    )


# ------------------------------------------------------------------------------- what may be read


def test_projects_that_are_measured_on_are_never_read(tmp_path: Path) -> None:
    for repo in ("a/b", "scrapy/scrapy", "fork/django", "localstack/localstack"):
        write_pairs(tmp_path, repo, [pair(repo, 1)])
    files = pair_files(tmp_path, ["LocalStack/localstack"])
    assert [file.name for file in files] == ["a+b.jsonl"]


def test_a_held_out_project_under_another_name_is_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path, "a/b", [pair("keras-team/keras", 1)])
    with pytest.raises(ConfigurationError, match=r"keras-team/keras is held out"):
        read_examples(tmp_path / "a+b.jsonl", 9)


def test_a_folder_without_pairs_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"agent\.training\.mining"):
        pair_files(tmp_path, [])


def test_fixes_are_read_first_and_documents_have_the_products_form(tmp_path: Path) -> None:
    rows = [pair("a/b", n, fix=n in (2, 4)) for n in range(1, 6)]
    write_pairs(tmp_path, "a/b", rows)
    found = read_examples(tmp_path / "a+b.jsonl", 3)
    assert [int(e.id, 16) for e in found] == [2, 4, 1]
    assert found[0].text == "Fix number 2\n\nIt was wrong."
    assert found[0].positives[0].text == "m.py\nC.run\ndef run(): ..."
    assert found[0].negatives[0].name == "m.py:C.stop"


def test_issues_are_read_of_projects_to_tune_on_only(tmp_path: Path) -> None:
    rows = []
    for repo in ("fastapi/fastapi", "scrapy/scrapy"):
        place = tmp_path / repo.replace("/", "+")
        place.mkdir()
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place))
        subprocess.run([*git, "init", "-q"], check=True)
        (place / "m.py").write_text("def f():\n    pass\n\n\ndef g():\n    pass\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "c"], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True)
        row = {"instance_id": repo, "repo": repo, "base_commit": head.stdout.decode().strip()}
        row |= {"problem_statement": "Broken", "gold_functions": ["m.py:f"]}
        rows.append(json.dumps(row))
    (tmp_path / "d.jsonl").write_text("\n".join(rows))
    (issue,) = read_issues(tmp_path / "d.jsonl", tmp_path)
    assert (issue.repo, issue.text) == ("fastapi/fastapi", "Broken")
    assert [d.name for d in issue.positives] == ["m.py:f"]
    assert [d.name for d in issue.negatives] == ["m.py:g"]


# ------------------------------------------------------------------------------------- queries


def test_queries_are_made_like_issues_now_and_then() -> None:
    text = "Crash of parse_it\n\nThe call of parse_it fails; parse_item does not."
    answer = (document("Parser.parse_it"),)
    made = Example("o/one", "1", text, "assert parse(1) == 2", answer, ())
    queries = [training_query(made, random(seed)) for seed in range(200)]
    with_test = [query for query in queries if "assert parse(1) == 2" in query]
    masked = [query for query in queries if "parse_it " not in query]
    assert 30 < len(with_test) < 90
    assert 30 < len(masked) < 90
    assert all("parse_item" in query for query in masked)
    assert queries.count(query_of(text)) > 60


def test_a_message_that_is_nothing_but_the_name_keeps_it() -> None:
    made = Example("o/one", "1", "parse_it", "", (document("parse_it"),), ())
    assert {training_query(made, random(seed)) for seed in range(20)} == {query_of("parse_it")}


# ------------------------------------------------------------------------------------- batches


def test_a_batch_is_of_one_project() -> None:
    pool = Pool()
    pool.add(example(n, repo) for n in range(5) for repo in ("o/one", "o/two"))
    for seed in range(10):
        assert len({e.repo for e in pool.draw(4, random(seed))}) == 1
    with pytest.raises(ValueError, match="one project"):
        make_batch([example(1), example(2, "o/two")], 0, random())


def test_each_example_is_drawn_once_before_any_is_drawn_again() -> None:
    pool = Pool()
    pool.add(example(n) for n in range(10))
    generator = random()
    first, second = pool.draw(5, generator), pool.draw(5, generator)
    assert sorted(int(e.id) for e in (*first, *second)) == list(range(10))
    again = pool.draw(4, generator)
    last = pool.draw(8, generator)  # 6 are left: those come first, and none twice
    assert len({e.id for e in last}) == 8
    assert {e.id for e in last} >= set(map(str, range(10))) - {e.id for e in again}


def test_rows_of_a_batch_belong_together_and_negatives_follow() -> None:
    wrong = [document("w")]
    batch = make_batch([example(n, wrong=wrong) for n in range(3)], 2, random())
    assert batch.documents == ("def f0", "def f1", "def f2", "def w", "def w")
    assert [query.split()[1] for query in batch.queries] == ["0", "1", "2"]
    assert not batch.masked.any()


def test_other_answers_and_the_same_code_elsewhere_are_no_negatives() -> None:
    same = "def f(): pass"
    examples = [
        example(0, right=[document("a", same)]),
        example(1, right=[document("b", same)]),
        example(2, right=[document("c", "old")], wrong=[document("d", same)]),
        example(3, right=[document("c", "new")]),
    ]
    masked = make_batch(examples, 1, random()).masked
    expected = np.zeros((4, 5), dtype=bool)
    for row, column in ((0, 1), (1, 0), (0, 4), (1, 4), (2, 3), (3, 2)):
        expected[row, column] = True
    np.testing.assert_array_equal(masked, expected)


def test_the_same_seed_makes_the_same_batch() -> None:
    examples = [example(n, wrong=[document("v"), document("w")]) for n in range(6)]
    first, again, other = (make_batch(examples, 3, random(seed)) for seed in (5, 5, 6))
    assert first.documents == again.documents != other.documents
    assert first.queries == again.queries


# ------------------------------------------------------------------------------------ development


def test_trials_hold_every_answer_and_no_answer_as_a_wrong_one() -> None:
    functions = [document(f"w{n}") for n in range(20)]
    issues = [
        example(n, repo, right=[document(f"w{n}"), document("x")], wrong=functions)
        for n in range(6)
        for repo in ("o/one", "o/two")
    ]
    trials = make_trials(issues, most=8, same_file=5, same_project=7, seed=1)
    assert len(trials.trials) == 8
    assert len(set(trials.documents)) == len(trials.documents)
    for trial in trials.trials:
        answers = set().union(*trial.right.values())
        assert answers <= set(trial.candidates)
        assert len(set(trial.candidates)) == len(trial.candidates) <= 2 + 5 + 7
        names = {f"def {name.rpartition(':')[2]}" for name in trial.right}
        assert {trials.documents[row] for row in answers} == names
    assert make_trials(issues, most=8, same_file=5, same_project=7, seed=1) == trials
