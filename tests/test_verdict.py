"""Judging methods on held-out rows: known structure is found, and the arithmetic is right."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import log_loss

from fedres import FedResClassifier, FedResRegressor, compare
from fedres.report.verdict_table import print_verdict
from fedres.simulation.intervals import Interval, interval
from fedres.tables.encoder import Encoder
from fedres.tables.holdout import hold_out
from fedres.tables.judging import estimator_for
from fedres.tables.read_table import Table, read_table
from fedres.tables.table_comparison import OTHERS, TableComparison, _groups
from fedres.tables.verdict_words import part, shown

LOCAL = ["x0", "x1"]
FRAME = pd.DataFrame({"user": [1, 2], "stars": [1.0, 2.0], "x": [0, 1]})


def table(personal, seed=0, users=150, rows=3000):
    """Ten features matter to all alike, and the first two to each client in its own way."""
    rng = np.random.default_rng(seed)
    user, X = rng.integers(0, users, rows), rng.normal(size=(rows, 10))
    own = personal * rng.normal(size=(users, 2))
    y = X.sum(axis=1) / 3 + (own[user] * X[:, :2]).sum(axis=1) + rng.normal(0, 0.3, rows)
    return X, y, user


def made(errors, client=None, training_rows=None, task="numbers"):
    """A verdict of given errors of FedRes; those of all others are 4."""
    errors = np.asarray(errors, float)
    client = np.arange(len(errors)) if client is None else np.asarray(client)
    training_rows = np.ones(client.max() + 1, int) if training_rows is None else training_rows
    metrics = ("rmse", "mae") if task == "numbers" else ("log_loss", "accuracy")
    others = dict.fromkeys(metrics, np.full(len(errors), 4.0))
    every = {**dict.fromkeys(OTHERS, others), "fedres": dict.fromkeys(metrics, errors)}
    return TableComparison(task, False, 9, client, np.asarray(training_rows), every)


@pytest.mark.parametrize("by_time", [True, False])
def test_a_personal_part_is_found(by_time):
    X, y, user = table(personal=0.7)
    time = np.arange(len(y)) if by_time else None
    verdict = compare(
        X, label=y, client=user, time=time, model=FedResRegressor(local_features=LOCAL)
    )
    for method in OTHERS:
        gain = verdict.gain_over(method)
        assert gain.mean > gain.half
    assert verdict.verdict().startswith("Personal + shared pays: FedRes (RMSE 0.")
    counts = verdict.counts("central")
    assert counts.gain > 0.8 * len(verdict.rows_of)
    assert counts.gain + counts.lose + counts.same == len(verdict.rows_of)


def test_without_a_personal_part_fedres_is_no_worse_than_central():
    X, y, user = table(personal=0.0, seed=1)
    verdict = compare(X, label=y, client=user, model=FedResRegressor(local_features=LOCAL))
    gain = verdict.gain_over("central")
    assert abs(gain.mean) < max(gain.half, 0.01 * verdict.score("central", "rmse").mean)
    assert verdict.gain_over("independent").mean > 0


def test_classes_are_judged_by_log_loss():
    X, y, user = table(personal=0.7)
    labels = np.where(y > 0, "yes", "no")
    verdict = compare(X, label=labels, client=user, model=FedResClassifier(local_features=LOCAL))
    assert verdict.task == "classes"
    for method in OTHERS:
        assert verdict.gain_over(method).mean > 0
        accuracies = [verdict.score(one, "accuracy").mean for one in (method, "fedres")]
        assert accuracies[0] < accuracies[1] < 1


def test_the_last_rows_of_each_client_are_held_out_whatever_their_order():
    X, y, user = table(personal=0.5, rows=400, users=20)
    time, shuffled = np.arange(400), np.random.default_rng(0).permutation(400)
    model = FedResRegressor(eta=0.1, shrinkage=1.0, passes=1)
    verdict = compare(X, label=y, client=user, time=time, model=model)
    mixed = compare(
        X[shuffled],
        label=y[shuffled],
        client=user[shuffled],
        time=time[shuffled],
        model=model,
    )
    train, held = hold_out(Table(X, y, user, time), 0.2)
    assert verdict.training_rows == len(train)
    assert verdict.by_time
    expected = verdict.score("constant", "mae").mean
    assert expected == pytest.approx(np.abs(y[held] - y[train].mean()).mean())
    assert mixed.score("constant", "mae").mean == pytest.approx(expected)
    assert mixed.score("fedres", "rmse") == pytest.approx(verdict.score("fedres", "rmse"))
    counts = pd.Series(user[train]).value_counts()
    assert sorted(verdict.training_rows_of) == sorted(counts[np.unique(user[held])])


def test_known_and_new_clients_are_judged_apart():
    """On rows by time alone, half of the judged clients are new and hide what is personal."""
    X, y, user = table(personal=0.7, users=60)
    order = np.argsort(user // 20, kind="stable")  # a third of the clients comes last
    X, y, user = X[order], y[order], user[order]
    user[-200:] += 100 * (np.arange(200) // 20)
    verdict = compare(
        X, label=y, client=user, time=np.arange(3000), model=FedResRegressor(local_features=LOCAL)
    )
    assert (verdict.training_rows_of > 0).all()
    assert (verdict.new.training_rows_of == 0).all()
    assert verdict.gain_over("central").mean > verdict.gain_over("central").half
    assert verdict.new.gain_over("central").mean < verdict.gain_over("central").mean / 2
    head, new, last = verdict.verdict().splitlines()
    assert head.startswith("Personal + shared pays: FedRes (RMSE 0.")
    assert new.startswith(f"New clients ({len(verdict.new.rows_of)}, without training rows): Fed")
    assert last == "Recommended: FedRes."
    plain = json.loads(json.dumps(verdict.to_dict()))
    found = plain["new_clients"]
    rows = plain["training_rows"] + plain["held_out_rows"] + found["held_out_rows"]
    assert rows == 3000
    score = verdict.new.score("fedres", "rmse").mean
    assert found["methods"]["fedres"]["rmse"] == score
    assert f"{score:.2f}"[:4] in new
    first, second, *_ = verdict.by_training_rows("central")
    assert (first.low, first.clients) == (0, len(verdict.new.rows_of))
    assert second.low == 1


def test_frames_sparse_matrices_and_lists_are_taken():
    X, y, user = table(personal=0.5, rows=300)
    model = FedResRegressor(eta=0.1, shrinkage=1.0, passes=1)
    scores = {
        compare(rows, label=y.tolist(), client=clients, model=model).score("constant", "rmse").mean
        for rows in (X, pd.DataFrame(X), csr_array(X))
        for clients in (user, user.tolist(), pd.Series(user).astype(str))
    }
    assert len(scores) == 1
    with pytest.raises(ValueError, match="client is missing in row 0"):
        compare(X, label=y, client=[None, *user[1:]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        compare(X, label=y[1:], client=user)


def test_every_kind_of_table_is_the_same_table(tmp_path):
    X, y, user = table(personal=0.5, rows=300)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    whole = frame.assign(user=user, stars=y, day=np.arange(300)[::-1])
    whole.to_csv(tmp_path / "whole.csv", index=False)
    names = {"client": "user", "label": "stars", "time": "day"}
    model = FedResRegressor(eta=0.1, shrinkage=1.0, passes=1)
    found = [
        compare(whole, **names, model=model),
        compare(whole.drop(columns="user"), **{**names, "client": user}, model=model),
        compare(tmp_path / "whole.csv", **names, model=model),
        compare(str(tmp_path / "whole.csv"), **names, model=model),
        compare(read_table(tmp_path / "whole.csv", **names), model=model),
        compare(X, client=user, label=y, time=whole["day"].tolist(), model=model),
    ]
    assert len({one.verdict() for one in found}) == 1
    assert all(one.by_time for one in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "stars"}, "label is for a table: give its client too"),
        ({"seed": 0}, "seed is for a table"),
        ({"model": FedResRegressor()}, "model is for a table"),
        ({"data": FRAME}, "a table needs a client: name its column"),
        ({"data": FRAME, "client": "user"}, "a table needs a label: name its column"),
        ({"data": "whole.csv", "client": "user"}, "a table needs a label"),
        ({"data": Table(FRAME)}, "a table needs a client"),
        ({"data": Table(FRAME), "client": "user"}, "client is for other kinds of tables"),
        ({"data": FRAME, "client": "who", "label": "stars"}, "no column 'who' for the client"),
        (
            {"data": FRAME, "client": "user", "label": "user"},
            "client and label are both column 'us",
        ),
        ({"data": FRAME, "client": "user", "label": "stars", "delay": 0}, "delay is for data sets"),
        ({"data": FRAME, "client": "user", "label": "stars", "n_jobs": 1}, "n_jobs is for data"),
    ],
)
def test_options_of_the_other_kind_are_mistakes(options, message):
    with pytest.raises(ValueError, match=message) as error:
        compare(**options)
    assert "\n" not in str(error.value)


def test_both_kinds_of_comparison_speak_alike():
    X, y, user = table(personal=0.7, rows=600)
    model = FedResRegressor(eta=0.1, shrinkage=1.0, passes=1)
    for found in (
        compare(seeds=2, rounds=20, n_jobs=1),
        compare(X, client=user, label=y, model=model),
    ):
        plain = json.loads(json.dumps(found.to_dict()))
        assert plain["verdict"] == found.verdict()
        for method in ("independent", "central", "fedres"):
            for metric in found.metrics:
                assert plain["methods"][method][metric] == found.score(method, metric).mean
                half = plain["methods"][method][f"{metric}_interval"]
                assert half == found.score(method, metric).half
        scores = [found.score(method, found.metrics[0]).mean for method in ("fedres", "central")]
        gain = found.gain_over("central").mean
        assert abs(gain) == pytest.approx(abs(scores[0] - scores[1]))


@pytest.mark.parametrize("kind", [pd.DataFrame, np.asarray, csr_array])
@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_rows_are_encoded_once_for_all_methods(kind, monkeypatch):
    X, y, user = table(personal=0.5, rows=300)
    frame, learn, encode, calls = kind(X), Encoder.fit, Encoder.encode, []
    model = FedResRegressor(passes=1)
    train, held = (
        Table(frame, y, user).take(rows) for rows in (np.arange(200), np.arange(200, 300))
    )
    monkeypatch.setattr(Encoder, "fit", lambda *a, **k: calls.append("fit") or learn(*a, **k))
    monkeypatch.setattr(Encoder, "encode", lambda *a: calls.append("encode") or encode(*a))
    found = list(model.fit_each(["independent", "central", "fedres"], train, held))
    assert calls == ["fit", "encode", "encode"]
    for one, scores in found:
        alone = clone(one).fit(train.frame, train.y, train.client)
        expected = alone.predict(held.frame, held.client)
        np.testing.assert_array_equal(one.predict(held.frame, held.client), expected)
        np.testing.assert_array_equal(one._labels.values(scores), expected)
        assert (one.eta_, one.shrinkage_) == (alone.eta_, alone.shrinkage_)
    assert [one.method for one, _ in found] == ["independent", "central", "fedres"]
    assert not hasattr(model, "encoder_")


def test_a_class_that_only_held_out_rows_have_costs_all_methods_the_same():
    X, y, user = table(personal=0.5, rows=300)
    labels = np.where(y > 0, "yes", "no").astype(object)
    labels[-1], user[-30:] = "maybe", 3
    verdict = compare(
        X, label=labels, client=user, time=np.arange(300), model=FedResClassifier(passes=1, eta=0.1)
    )
    train, held = hold_out(Table(X, labels, user, np.arange(300)), 0.2)
    held = held[np.isin(user[held], user[train])]
    assert held[-1] == 299
    last = [verdict.errors[method]["log_loss"][-1] for method in (*OTHERS, "fedres")]
    assert np.isfinite(last).all()
    assert len(set(last)) == 1
    shares = [(labels[train] == label).mean() for label in ("no", "yes")]
    constant = np.tile(shares, (len(held) - 1, 1))
    expected = log_loss(labels[held[:-1]].astype(str), constant, labels=["no", "yes"])
    assert verdict.errors["constant"]["log_loss"][:-1].mean() == pytest.approx(expected)


def test_intervals_are_over_clients():
    # With one row a client it is the interval of a mean, through the root for RMSE.
    errors = [1.0, 4.0, 9.0, 2.0]
    verdict = made(errors)
    mean, half = interval(errors)
    assert verdict.score("fedres", "mae") == pytest.approx((mean, half))
    root = np.sqrt(mean)
    assert verdict.score("fedres", "rmse") == pytest.approx((root, half / (2 * root)))
    assert verdict.gain_over("central") == pytest.approx((2 - root, half / (2 * root)))
    # Ten copies of all rows tell nothing new of the clients.
    copied = made(errors * 10, [*range(4)] * 10)
    assert copied.score("fedres", "mae") == pytest.approx((mean, half))


def test_clients_gain_clearly_if_their_own_rows_tell():
    errors = [1, 1, 1, 1.0, 4, 4, 6, 6.1, 1, 9, 3]
    verdict = made(errors, [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4])
    counts = verdict.counts("central")
    assert counts._asdict() == {
        "gain": 2, "lose": 2, "same": 1, "gain_clearly": 1, "lose_clearly": 1,
    }  # fmt: skip
    assert verdict.gains_of_clients("central")[:2] == pytest.approx([1.0, 0.0])


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=80))
def test_groups_hold_every_client_once_and_are_not_too_small(training_rows):
    rows = np.array(training_rows)
    edges = _groups(rows)
    assert (np.diff(edges[:-1]) > 0).all()
    assert edges[-1] > rows.max()
    found = made(np.arange(len(rows)), training_rows=rows).by_training_rows("central")
    assert sum(group.clients for group in found) == len(rows)
    assert all(group.clients >= 5 for group in found if group.low > 1)


@pytest.mark.parametrize(
    ("gains", "head", "recommended"),
    [
        ((2.0, 2.0, 2.0), "Personal + shared pays", "FedRes"),
        ((2.0, 0.0, 2.0), "Personalisation pays, sharing makes no clear difference", "FedRes"),
        ((2.0, -1.0, 2.0), "Clients do best alone", "Independent"),
        ((0.0, 2.0, 2.0), "Sharing pays, personalisation makes no clear difference", "Central"),
        ((0.05, 2.0, 2.0), "Sharing pays, personalisation makes no clear difference", "FedRes"),
        ((-1.0, 2.0, 2.0), "Sharing pays, personalisation does not", "Central"),
        ((-1.0, -1.2, 2.0), "Personal or shared alone is better than both", "Independent"),
        ((-1.2, -1.0, 2.0), "Personal or shared alone is better than both", "Central"),
        ((2.0, 2.0, 0.0), "These features tell little, a constant does as well", "FedRes"),
    ],
)
def test_the_sentence_says_what_the_gains_are(gains, head, recommended):
    noise = 0.2 * np.array([-1, 1] * 20)
    errors = {
        method: {"rmse": 2 + gain + noise * (0 <= gain < 0.1)}
        for method, gain in zip(("central", "independent", "constant"), gains, strict=True)
    }
    errors = {name: {"rmse": np.broadcast_to(e["rmse"], 40)} for name, e in errors.items()}
    client = np.arange(40)
    errors["fedres"] = {"rmse": np.full(40, 2.0) + 0.01 * (client % 3)}
    verdict = TableComparison("numbers", True, 9, client, client, errors)
    first, last = verdict.verdict().splitlines()
    assert first.startswith(f"{head}")
    assert ": FedRes (RMSE 1.41" in first
    assert last == f"Recommended: {recommended}."


@pytest.mark.parametrize(
    ("constant", "ours", "head"),
    [
        ([4.0] * 40, [4.0] * 40, "These features tell little, a constant does as well: "),
        ([4.0] * 40, [5.0] * 40, "These features mislead, a constant does better: "),
        # One label that is far away decides the error of all methods.
        ([1.0] * 39 + [1e18], [0.5] * 39 + [1e18], "FedRes cannot be told from a constant with 40"),
    ],
)
def test_no_gain_over_a_constant_is_no_equality(constant, ours, head):
    verdict = made(ours)
    verdict.errors["constant"] = {"rmse": np.array(constant)}
    assert verdict.verdict().startswith(head)


def test_a_few_clients_recommend_nothing():
    verdict = made([1.0, 2.0] * 40, np.arange(80) % 2)
    bad = np.where(np.arange(80) % 2, 1.9, 9)
    verdict.errors["constant"] = {"rmse": bad, "mae": bad}
    first, last = verdict.verdict().splitlines()
    assert first.startswith("FedRes cannot be told from a constant with 2 clients: ")
    assert last == "2 judged clients are too few to recommend a method: at least 5 are needed."
    assert made([1.0] * 40, np.arange(40) % 4).verdict().startswith("Too few clients to tell: ")
    assert verdict.to_dict()["recommended"] is None


def test_a_tiny_error_is_doubted():
    said = "The error of FedRes is 0.5% of Constant's: see that no column is known only with the"
    assert said in made([1e-4] * 40).verdict()
    assert "of Constant's" not in made([0.01] * 40).verdict()


@pytest.mark.parametrize("rows", [1, 2, 29])
def test_no_method_is_recommended_after_few_judged_rows(rows):
    verdict = made([9.0] * rows)  # FedRes is clearly worse than all others
    first, last = verdict.verdict().splitlines()
    assert first.startswith("Too few rows to tell: " if rows > 1 else "One client alone")
    judged = "1 judged row is" if rows == 1 else f"{rows} judged rows are"
    assert last == f"{judged} too few to recommend a method: at least 30 are needed."
    assert verdict.to_dict()["recommended"] is None
    assert verdict.recommended == "fedres"
    assert made([9.0] * 30).to_dict()["recommended"] in ("central", "independent")


def test_the_share_of_clients_who_would_be_worse_off_is_said():
    errors = [1, 1, 1, 1.0, 4, 4, 6, 6.1, 1, 9, 3]
    verdict = made(errors, [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4])
    said = "40% of 5 clients would be worse off than alone (20% clearly) and 40% than with Central"
    assert said in verdict.verdict()
    assert [part(n, 1000) for n in (0, 1, 994, 999, 1000)] == ["0%", "<1%", ">99%", ">99%", "100%"]


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 1e5, 1e12])
@pytest.mark.parametrize("noise", [0.02, 1.0])
def test_the_table_fits_a_terminal_with_many_clients(unit, noise, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    client = np.repeat(np.arange(86_000), 3)
    rng = np.random.default_rng(0)
    errors = {
        method: dict.fromkeys(("rmse", "mae"), unit * scale * rng.random(len(client)) ** noise)
        for method, scale in zip((*OTHERS, "fedres"), (9.0, 1.5, 1.4, 1.0), strict=True)
    }
    training_rows = np.arange(86_000) + 1
    print_verdict(TableComparison("numbers", True, 10**6, client, training_rows, errors), "a.csv")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert any("86,000 clients" in line for line in lines)


def test_a_narrow_terminal_cuts_no_number(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    verdict = made(1000 + np.arange(80.0), np.arange(80) % 8)
    print_verdict(verdict, "t.csv")
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert "Independent" in said
    lines = [line.split() for line in said.splitlines()]
    assert sum("(100%)" in line for line in lines) == 3


def test_one_client_cannot_tell():
    verdict = made([1.0, 2.0], [0, 0])
    assert verdict.verdict().startswith("One client alone cannot tell")
    assert "nan" not in verdict.verdict()
    assert json.loads(json.dumps(verdict.to_dict(), allow_nan=False))


def test_numbers_are_shown_to_the_digits_that_are_certain():
    assert shown(Interval(1.23456, 0.00789)) == "1.2346 ± 0.0079"
    assert shown(Interval(-0.5, np.nan)) == "-0.5"
    assert shown(Interval(2e5, 3e4)) == "200,000 ± 30,000"
    assert shown(Interval(2e6, 3e4)) == "2e+06 ± 3e+04"
    assert shown(Interval(0.0, 0.02)) == "0.000 ± 0.020"


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["a", "b", "c"], FedResClassifier),
        ([True, False], FedResClassifier),
        ([0, 1, 1], FedResClassifier),
        ([0.5, 1.0, 1.5], FedResRegressor),
        ([1, 2, 3], FedResRegressor),
        ([0.0, 1.0], FedResClassifier),
    ],
)
def test_labels_tell_the_task(labels, kind):
    assert type(estimator_for(np.array(labels))) is kind


def test_a_task_may_be_named():
    assert type(estimator_for(np.array([1, 2, 3]), "classes")) is FedResClassifier
    with pytest.raises(ValueError, match="unknown task 'both': choose one of numbers, classes"):
        estimator_for(np.array([1, 2]), "both")


def test_two_fractions_are_numbers_and_that_is_said():
    with pytest.warns(UserWarning, match=r"labels 0.25 and 1.75 are taken for numbers, not for"):
        assert type(estimator_for(np.array([1.75, 0.25, 1.75]))) is FedResRegressor
    assert type(estimator_for(np.array([1.75, 0.25]), "numbers")) is FedResRegressor


@pytest.mark.parametrize(
    ("labels", "task", "message"),
    [
        ([3.0, 3.0], None, "the label is 3.0 in every row: there is nothing to learn"),
        (["a", "a"], "classes", "the label is 'a' in every row"),
        ([1.0, 2.5, 3.0], "classes", "labels such as 2.5 are no classes: write classes as texts"),
    ],
)
def test_labels_that_teach_nothing(labels, task, message):
    with pytest.raises(ValueError, match=message):
        estimator_for(np.array(labels), task)


def test_clients_with_a_row_each_cannot_be_judged():
    X, y, _ = table(personal=0.5, rows=30)
    for time in (None, np.arange(30)):
        with pytest.raises(ValueError, match="each of the 30 clients has one row, and needs one"):
            compare(X, label=y, client=np.arange(30), time=time)
