"""What objects show in a terminal and in a notebook, and the numbers of `summary`."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline

import fedres
from fedres import FedResClassifier, FedResRegressor
from fedres.cli.inspect import inspect
from fedres.core.display import Grid, as_html, as_text

EVIL = "<script>alert(1)</script>"
rng = np.random.default_rng(0)
USER = rng.integers(0, 30, 900)
X = pd.DataFrame({"age": rng.normal(40, 10, 900), EVIL: rng.choice(["a", EVIL], 900)})
Y = 0.1 * X["age"].to_numpy() + (X[EVIL] == "a") + rng.normal(size=30)[USER]
Y += rng.normal(size=900)
IDS = np.array([f"<u>{user}" for user in USER])


@pytest.fixture(scope="module")
def fitted():
    return FedResRegressor(local_features=["age"]).fit(X, Y, client=IDS)


@pytest.fixture(scope="module")
def judged():
    return fedres.compare(X, client=IDS, label=Y)


def shown(fitted, judged):
    compared = fedres.compare(seeds=2, rounds=20)
    run = fedres.simulate(fedres.federate("digits", clients=3), "mixture", rounds=20)
    return {
        "comparison": compared,
        "verdict": judged,
        "run": run,
        "federation": fedres.federate("digits", clients=3),
        "own federation": fedres.Federation.from_arrays(
            np.eye(4), None, [1, 0, 1, 0], list("abab")
        ),
        "data": fedres.load_data("digits"),
        "model": fitted,
        "weights": fitted.global_model_,
        "local models": fitted.local_models_,
        "local model": fitted.local_models_[IDS[0]],
        "summary": fitted.summary(),
        "summary of a verdict's model": judged.model.summary(),
    }


def test_what_is_shown_is_short_and_escaped(fitted, judged):
    for name, one in shown(fitted, judged).items():
        lines = repr(one).splitlines()
        assert 2 <= len(lines) < 30, name
        assert max(map(len, lines)) < 120, name
        assert "array(" not in repr(one), name
        html = one._repr_html_()
        assert "<table>" in html, name
        assert EVIL not in html, name
        assert "<u>" not in html, name
    assert "array(" not in repr(fedres.compare(seeds=2, rounds=20).outcomes)


def test_text_is_aligned_and_html_is_escaped():
    grid = Grid(["name", "rows"], [[EVIL, "1"], ["two\nlines", "1,234"]])
    name, first, second = as_text([grid]).splitlines()
    assert len(first) == len(second) == len(name)
    assert second.startswith("two lines ")
    assert "<script" not in as_html([grid, EVIL])
    assert "&lt;script&gt;" in as_html([grid])


def test_terminal_and_repr_show_the_same_cells(judged):
    text = repr(judged)
    for row in judged.table().rows:
        assert all(cell in text for cell in row)
    assert judged.verdict().splitlines()[-1] in text


def test_an_unfitted_model_is_shown_as_scikit_learn_shows_it(fitted):
    model = FedResRegressor(shared="trees")
    assert repr(model) == "FedResRegressor(shared='trees')"
    assert "sk-" in model._repr_mimebundle_()["text/html"]
    assert "Variance components" not in model._repr_html_()
    assert "sk-" in fitted._repr_html_()
    assert "Variance components" in fitted._repr_html_()
    with config_context(display="text"):
        assert list(fitted._repr_mimebundle_()) == ["text/plain"]
        assert not hasattr(fitted, "_repr_html_")
    assert "fitted to" not in repr(make_pipeline(fitted))


def test_dir_lists_public_names_that_exist():
    names = dir(fedres)
    assert {*fedres.__all__, "bandits", "learners", "theory"} == {*names} - {"__version__"}
    assert all(hasattr(fedres, name) for name in names)
    for module in (fedres.bandits, fedres.theory):
        assert {*dir(module)} == {*module.__all__}
        assert not {"Any", "TYPE_CHECKING", "np"} & {*dir(module)}
    assert "1 feature and" in repr(fedres.FedResRegressor().fit(X[["age"]], Y, USER).global_model_)


def gls(columns, user, noise, variance, precision):
    """Covariance of shared weights given variances, all rows and clients at once."""
    same = user[:, None] == user
    v = noise * np.eye(len(user)) + variance * same
    return np.linalg.inv(columns.T @ np.linalg.solve(v, columns) + np.diag(precision))


def test_standard_errors_are_those_of_generalised_least_squares():
    x = rng.normal([40.0, 5.0], [10.0, 0.5], (900, 2))
    y = x @ [0.3, 4.0] + 7 + rng.normal(size=30)[USER] + rng.normal(size=900)
    model = FedResRegressor(local_features=[]).fit(x, y, client=USER)
    parts = model.summary().components.set_index(["part", "column"])["variance"]
    noise, variance = parts["residual", ""], parts["client", "constant"]
    found = model.summary().weights.set_index("column")["standard_error"]
    # As the model sees columns, where shared numbers have a prior variance.
    z = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(900)])
    known = gls(z, USER, noise, variance, [1 / parts["shared", "numbers"]] * 2 + [0])
    back = np.zeros((3, 3))
    back[[0, 1], [0, 1]] = 1 / x.std(axis=0)
    back[2] = [*(-x.mean(axis=0) / x.std(axis=0)), 1]
    expected = np.sqrt(np.diag(back @ known @ back.T))
    np.testing.assert_allclose(found[["x0", "x1", "constant"]], expected, rtol=1e-3)
    # With so many rows the prior hardly matters, and textbook errors of raw columns are close.
    raw = np.column_stack([x, np.ones(900)])
    plain = np.sqrt(np.diag(gls(raw, USER, noise, variance, [0, 0, 0])))
    np.testing.assert_allclose(found[["x0", "x1", "constant"]], plain, rtol=0.01)


def test_weights_are_in_units_of_the_columns(tmp_path):
    x = rng.normal([40.0, 5.0], [10.0, 0.5], (900, 2))
    y = x @ [0.3, 4.0] + 7 + 0.1 * rng.normal(size=900)
    inside = np.abs(x - x.mean(axis=0)).max(axis=1) < 8
    for solver in ("bayes", "sgd"):
        model = FedResRegressor(solver=solver).fit(x, y, client=USER)
        line = x @ model.coef_ + model.intercept_
        assert model.coef_.shape == (2,)
        known = model.predict(x, client=False)
        np.testing.assert_allclose(line[inside], known[inside], rtol=1e-5)
    counts = FedResRegressor(loss="poisson").fit(x, np.floor(y.clip(0)), client=USER)
    line = np.exp(x @ counts.coef_ + counts.intercept_)
    np.testing.assert_allclose(line, counts.predict(x, client=False), rtol=1e-4)
    for classes in (2, 3):
        labels = np.digitize(y, [38, 41][: classes - 1])
        model = FedResClassifier().fit(x, labels, client=USER)
        line = x @ model.coef_.T + model.intercept_
        assert model.coef_.shape == (1 if classes == 2 else 3, 2)
        odds = model.decision_function(x, client=False).reshape(900, -1)
        np.testing.assert_allclose(line, odds, atol=1e-4)


def test_weights_of_categories_and_missing_values():
    frame = X.rename(columns={EVIL: "kind"}).assign(age=X["age"].where(X.index % 7 > 0))
    model = FedResRegressor(local_features=[]).fit(frame, Y, client=USER)
    assert model.encoder_.names_global == ["age", "age=missing", "kind=<script>alert(1)</script>",
                                           "kind=a"]  # fmt: skip
    age = frame["age"].fillna(frame["age"].mean())
    features = [age, frame["age"].isna(), frame["kind"] != "a", frame["kind"] == "a"]
    line = np.column_stack(features).astype(float) @ model.coef_ + model.intercept_
    np.testing.assert_allclose(line, model.predict(frame, client=False), rtol=1e-5)


@pytest.mark.parametrize("options", [{"shared": "trees"}, {"method": "independent"}], ids=str)
def test_without_a_linear_shared_model_there_is_no_coef(options):
    model = FedResRegressor(**options)
    assert not hasattr(model, "coef_")
    model.fit(X, Y, client=USER)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "intercept_")
    with pytest.raises(AttributeError, match="no coef_ and intercept_: "):
        model.coef_  # noqa: B018
    assert "no standard errors: " in repr(model.summary())


def test_trees_are_part_of_what_is_shown(tmp_path, capsys):
    model = FedResRegressor(shared="trees", local_features=[]).fit(X, Y, client=USER)
    parts = model.variance_components_.set_index(["part", "column"])["share"]
    assert parts["shared", "trees"] > 0.2
    assert ("shared", "numbers") not in parts.index
    assert "trees" in repr(model.summary()).split("Variance components")[1]
    model.save(tmp_path / "model")
    again = fedres.load_model(tmp_path / "model").variance_components_
    pd.testing.assert_frame_equal(again, model.variance_components_)
    inspect(tmp_path / "model")
    said = capsys.readouterr().out
    assert "shared    trees (LightGBM, " in said
    assert f"of the variance, {'shared trees' if parts.idxmax()[1] == 'trees' else ''}" in said
    assert "age " not in said.split("Clients that")[1]
    inspect(tmp_path / "model", json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["shared"]["kind"] == "trees"
    assert found["shared"]["trees"] > 0
    assert [one["feature"] for one in found["largest_global_weights"]] == ["constant"]


def test_a_summary_explains_shares_and_errors():
    said = " ".join(repr(FedResRegressor().fit(X, Y, client=USER).summary()).split())
    assert "share: of the variance of labels; variance times the mean square of the feat" in said
    assert f"standard errors of categories, such as those of {EVIL}, are not those of" in said
    counts = FedResRegressor(loss="poisson").fit(X, Y.clip(0).round(), client=USER)
    assert "share: of the variance of the logarithm of the mean" in repr(counts.summary())
    model = FedResClassifier().fit(X, np.digitize(Y, [3, 5]), client=USER)
    said = repr(model.summary())
    assert "share: of the variance of log odds, whose residual is pi^2 / 3" in said
    assert "rows: summary().components" in said
    none = model.variance_components_.query("part == 'client' and variance == 0")
    effects = model.effects_.merge(none[["class", "column"]])
    assert len(effects)
    assert not effects[["effect", "standard_error"]].to_numpy().any()


def test_a_summary_names_the_offset():
    frame = X.assign(size=1.0 + X.index % 3)
    model = FedResRegressor(offset="size").fit(frame, Y + frame["size"], client=USER)
    assert "offset: column size, added to the sum of both models" in repr(model.summary())


def test_a_summary_says_why_there_are_no_standard_errors():
    by_sgd = FedResRegressor(solver="sgd", eta=0.1).fit(X, Y, client=USER)
    assert "no standard errors: solver='sgd'" in repr(by_sgd.summary())
    assert "no variance components: solver='sgd'" in repr(by_sgd.summary())
    assert "z" not in repr(by_sgd.summary()).split("Shared weights")[1].split("\n")[1]
    dicts = FedResRegressor(client="user")
    dicts.learn_one({"user": "ann", "age": 3.0}, 1.0)
    assert "began with learn_one" in repr(dicts.summary())


def test_a_summary_tells_how_the_model_was_chosen(judged, tmp_path):
    model = FedResRegressor(shared="auto").fit(X, Y, client=USER)
    facts = model.summary().facts
    assert facts["chosen"].startswith(f"{model.shared_}, with ")
    assert f"linear {model.validation_[0]['loss']:.4g}" in facts["validation losses"]
    assert model.summary().verdict is None
    judged.model.save(tmp_path / "model")
    again = fedres.load_model(tmp_path / "model").summary()
    assert repr(again) == repr(judged.model.summary())
    assert again.verdict == judged.verdict()
    assert "verdict_" not in vars(fedres.load_model(tmp_path / "model").fit(X, Y, client=USER))


def test_rows_are_counted(fitted):
    model = FedResRegressor().fit(X, Y, client=USER)
    assert "fitted to 900 rows of 30 clients" in repr(model)
    model.partial_fit(X[:10], Y[:10], client=USER[:10])
    assert model.n_samples_seen_ == 910
