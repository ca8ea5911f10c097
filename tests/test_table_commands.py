"""fit, evaluate, predict, inspect and compare on tables, from end to end."""

import json
import os
from errno import ENOSPC
from io import StringIO
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn import metrics
from typer.testing import CliRunner

import fedres
from fedres import FedResRegressor
from fedres.cli.compare import compare
from fedres.cli.data import data
from fedres.cli.evaluate import evaluate
from fedres.cli.fit import fit
from fedres.cli.inspect import inspect
from fedres.cli.predict import predict
from fedres.tables.client_ids import ClientWarning
from fedres.tables.columns import describe, recall
from fedres.tables.ratings import generate
from fedres.tables.stored_estimator import load_model

app = typer.Typer()
for command in (compare, evaluate, fit, inspect, predict):
    app.command()(command)
app.add_typer(data, name="data")

pytestmark = pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
COLUMNS = ["--client", "user_id", "--label", "rating", "--categorical", "item_id"]


def run(*arguments):
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ratings as numbers and as classes, a model of each, and rows that they never saw."""
    folder = tmp_path_factory.mktemp("tables")
    ratings = generate(users=40, items=30, rows=1500)
    ratings.iloc[:1200].to_csv(folder / "ratings.csv", index=False)
    new = ratings.iloc[1200:].assign(user_id=lambda t: t.user_id.where(t.index < 1480, 999))
    new.to_parquet(folder / "new.parquet")
    new.to_csv(folder / "new.csv", index=False)
    moods = pd.cut(ratings.rating, [0, 3, 4, 5], labels=["bad", "fair", "good"]).astype(str)
    liked = ratings.assign(rating=moods, user_id="u" + ratings.user_id.astype(str))
    liked.iloc[:1200].to_csv(folder / "liked.csv", index=False)
    liked.iloc[1200:].to_csv(folder / "new_liked.csv", index=False)
    run("fit", folder / "ratings.csv", *COLUMNS, "--local", "genres", "--time", "timestamp",
        "--out", folder / "model")  # fmt: skip
    run("fit", folder / "liked.csv", *COLUMNS, "--out", folder / "classes", "--json")
    return folder


def test_fit_says_the_verdict_and_saves_a_model_of_all_rows(folder, tmp_path):
    page = tmp_path / "report.html"
    done = run("fit", folder / "ratings.csv", *COLUMNS, "--local", "genres,year", "--time",
               "timestamp", "--out", tmp_path / "model", "--report", page)  # fmt: skip
    for said in (
        "Constant",
        "Independent",
        "Central",
        "FedRes",
        "RMSE",
        "worse off than alone",
        "Recommended: ",
        "Saved in ",
    ):
        assert said in done
    html = page.read_text()
    for where in (done, html):  # how columns were read
        for said in ("item_id", "genres", "year", "categories", "number", "seen by", "both"):
            assert said in where
    assert html.count("<svg") == 7
    assert "Where the personal part helped most (client" in html
    for fetched in ("<link", "<script", "src=", "@import", 'href="http'):
        assert fetched not in html
    model = load_model(tmp_path / "model")
    assert model.columns_ == {"client": "user_id", "label": "rating", "time": "timestamp"}
    assert len(model.clients_) == pd.read_csv(folder / "ratings.csv").user_id.nunique()
    assert [model.encoder_.columns[i].name for i in model.encoder_.local] == ["genres", "year"]


@pytest.mark.parametrize("memory", [[], ["--memory", "2GB"]], ids=["in memory", "in shards"])
def test_fit_recommends_nothing_after_a_few_judged_rows(memory, tmp_path):
    table, page = tmp_path / "table.csv", tmp_path / "page.html"
    pd.DataFrame({"user": [1] * 5 + [2] * 5, "x": range(10), "y": np.sin(range(10))}).to_csv(
        table, index=False
    )
    command = ["fit", table, "--client", "user", "--label", "y", "--shared", "linear", *memory]
    said = run(*command, "--out", tmp_path / "a", "--report", page)
    flat = " ".join(said.split())
    assert "2 judged rows are too few to recommend a method: at least 30 are needed." in flat
    assert "FedRes, the default; too few rows or clients were judged to recommend a method." in flat
    assert "2 judged rows are too few to recommend a method" in page.read_text()
    assert "Recommended" not in said + page.read_text()
    assert load_model(tmp_path / "a").method == "fedres"
    found = json.loads(run(*command, "--out", tmp_path / "b", "--method", "central", "--json"))
    assert (found["method"], found["recommended"]) == ("central", None)
    said = run(*command, "--out", tmp_path / "b", "--method", "central")
    assert "Central, as --method asks; too few rows or clients were judged" in " ".join(
        said.split()
    )


@pytest.mark.parametrize("memory", [[], ["--memory", "2GB"]], ids=["in memory", "in shards"])
def test_a_model_is_replaced_with_notice_and_only_by_a_whole_one(memory, tmp_path, monkeypatch):
    table, model = tmp_path / "table.csv", tmp_path / "model"
    rng = np.random.default_rng(0)
    pd.DataFrame(
        {"user": np.repeat([1, 2, 3, 4], 25), "x": rng.normal(size=100), "y": rng.normal(size=100)}
    ).to_csv(table, index=False)
    command = ["fit", table, "--client", "user", "--label", "y", "--shared", "linear", *memory]
    command = [str(one) for one in [*command, "--out", model]]
    notice = f"fedres: the model in {model} will be replaced when the new one is written\n"
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert notice not in first.stderr

    def full(source, target):
        if target.name == "model.json":
            raise OSError(ENOSPC, "No space left on device")
        replace(source, target)

    replace, old = os.replace, (model / "model.json").read_bytes()
    monkeypatch.setattr(os, "replace", full)
    failed = CliRunner().invoke(app, command)
    assert isinstance(failed.exception, OSError | ValueError)
    assert failed.stderr.startswith(notice)
    assert (model / "model.json").read_bytes() == old
    assert sorted(load_model(model).clients_) == [1, 2, 3, 4]
    monkeypatch.undo()
    again = CliRunner().invoke(app, [*command, "--json"])
    assert again.exit_code == 0, again.output
    assert notice in again.stderr
    assert json.loads(again.stdout)["model"] == str(model)


def test_fit_as_json(folder, tmp_path):
    found = json.loads(run("fit", folder / "ratings.csv", *COLUMNS, "--out", tmp_path, "--json"))
    assert set(found["methods"]) == {"constant", "independent", "central", "fedres"}
    assert set(found["methods"]["fedres"]) == {"rmse", "rmse_interval", "mae", "mae_interval"}
    assert found["rows"] == found["training_rows"] + found["held_out_rows"] == 1200
    clients = found["gain_of_fedres"]["central"]["clients"]
    assert clients["gain"] + clients["lose"] + clients["same"] == found["held_out_clients"]
    assert found["eta"] == load_model(tmp_path).eta_
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds == {
        "item_id": "categories", "genres": "categories", "year": "number", "timestamp": "number",
    }  # fmt: skip
    again = json.loads(run("compare", "--data", folder / "ratings.csv", *COLUMNS, "--json"))
    assert again["methods"] == found["methods"]


def test_what_is_saved_is_what_is_recommended(tmp_path):
    """Clients have nothing in common: alone they do best, and that is what is saved."""
    rng = np.random.default_rng(0)
    user, x = rng.integers(0, 8, 1600), rng.normal(size=(1600, 2))
    y = (rng.normal(size=(8, 2))[user] * x).sum(axis=1)
    table = pd.DataFrame({"user": user, "a": x[:, 0], "b": x[:, 1], "y": y})
    table.to_csv(tmp_path / "a.csv", index=False)
    command = ["fit", tmp_path / "a.csv", "--client", "user", "--label", "y", "--local", "a"]
    command += ["--solver", "sgd"]  # which has step sizes to carry from what was judged
    page = tmp_path / "page.html"
    said = run(*command, "--out", tmp_path / "own", "--report", page)
    assert "Recommended: Independent." in said
    assert f"Saved in {tmp_path / 'own'}: Independent, as recommended." in said.replace("\n", "")
    assert "Recommended: Independent." in page.read_text()
    own = load_model(tmp_path / "own")
    assert own.method == "independent"
    found = json.loads(run("compare", "--data", *command[1:], "--json"))
    assert found["recommended"] == "independent"

    said = run(*command, "--out", tmp_path / "all", "--method", "central")
    assert "Central, as --method asks; recommended is Independent." in said
    assert load_model(tmp_path / "all").method == "central"
    found = json.loads(run(*command, "--out", tmp_path / "all", "--method", "fedres", "--json"))
    assert (found["method"], found["recommended"]) == ("fedres", "independent")
    model = load_model(tmp_path / "all")
    judged = fedres.compare(
        table, client="user", label="y", model=FedResRegressor(local_features=["a"], solver="sgd")
    ).chosen
    for one, method in ((own, "independent"), (model, "fedres")):
        names = ("eta", "shrinkage", "passes", "shared")
        chosen = {name: getattr(one, name + "_") for name in names}
        assert chosen == judged[method] != judged["central"]
    assert model.method == "fedres"


def test_columns_may_be_ignored_and_solvers_chosen(folder, tmp_path):
    command = [folder / "ratings.csv", *COLUMNS[:4], "--ignore", "item_id,time*", "--json"]
    found = json.loads(run("fit", *command, "--solver", "sgd", "--out", tmp_path))
    model = load_model(tmp_path)
    assert model.solver == "sgd"
    assert model.feature_names_in_.tolist() == ["genres", "year"]
    assert run("predict", tmp_path, folder / "new.csv").startswith("user_id,item_id,genres")
    again = json.loads(run("compare", "--data", *command, "--solver", "sgd"))
    assert again["methods"] == found["methods"]
    for options, message in [
        (["--ignore", "user_id"], "ignore names 'user_id', but the columns are item_id, genres"),
        (["--solver", "magic"], "unknown solver 'magic'"),
        (["--method", "magic"], "unknown method 'magic': choose one of auto, independent, central"),
    ]:
        with pytest.raises(ValueError, match=message):
            run("fit", folder / "ratings.csv", *COLUMNS, "--out", tmp_path, *options)


def test_doubtful_columns_are_told_of_even_if_training_fails(folder, tmp_path):
    ratings = pd.read_csv(folder / "ratings.csv")
    ratings["year"] = ratings["year"].astype(float)
    ratings.loc[1100, "year"] = 1e30  # among the rows held out
    ratings["price"] = ["n/a?", *(f"{i / 7:.3f}" for i in range(1199))]
    ratings.to_csv(tmp_path / "odd.csv", index=False)
    arguments = ["compare", "--data", tmp_path / "odd.csv", *COLUMNS, "--time", "timestamp"]
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    said = " ".join(done.stdout.split())
    assert "1 of 1,200 values, 1e+30 in line 1102, is over 20 times the usual spread" in said
    assert "read as categories for 'n/a?'" in said
    assert "warning" not in done.stderr.lower()


def test_evaluate_is_what_scikit_learn_says_of_predictions(folder, tmp_path):
    scored = tmp_path / "scored.csv"
    found = json.loads(run("evaluate", folder / "model", folder / "new.parquet", "--json"))
    assert run("predict", folder / "model", folder / "new.csv", "--out", scored) == ""
    table = pd.read_csv(scored)
    pd.testing.assert_frame_equal(table.drop(columns="prediction"), pd.read_csv(folder / "new.csv"))
    known = set(pd.read_csv(folder / "ratings.csv").user_id)
    assert found == {
        "rmse": pytest.approx(metrics.root_mean_squared_error(table.rating, table.prediction)),
        "mae": pytest.approx(metrics.mean_absolute_error(table.rating, table.prediction)),
        "rows": 300,
        "unseen_clients": len(set(table.user_id) - known),
    }
    assert 999 in set(table.user_id)
    assert "rmse" in run("evaluate", folder / "model", folder / "new.csv")


def test_classes_have_probabilities(folder, tmp_path):
    found = json.loads(run("evaluate", folder / "classes", folder / "new_liked.csv", "--json"))
    scored = tmp_path / "scored.parquet"
    run("predict", folder / "classes", folder / "new_liked.csv", "--out", scored)
    table = pd.read_parquet(scored)
    probabilities = table[["probability_bad", "probability_fair", "probability_good"]].to_numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert list(found) == ["accuracy", "log_loss", "rows", "unseen_clients"]
    assert found["accuracy"] == (table.prediction == table.rating).mean()
    assert found["log_loss"] == pytest.approx(metrics.log_loss(table.rating, probabilities))


def test_unseen_and_missing_clients_get_the_global_model(folder, tmp_path):
    new = pd.read_csv(folder / "new.csv").drop(columns="rating").head(3)
    new["user_id"] = [new.user_id[0], 12345, None]
    new.loc[:, ["item_id", "genres", "year"]] = new.loc[0, ["item_id", "genres", "year"]].tolist()
    new.to_csv(tmp_path / "three.csv", index=False)
    run("predict", folder / "model", tmp_path / "three.csv", "--out", tmp_path / "out.csv")
    mine, unseen, missing = pd.read_csv(tmp_path / "out.csv").prediction
    assert unseen == missing != mine
    new.drop(columns="user_id").to_csv(tmp_path / "nobody.csv", index=False)
    arguments = [
        "predict",
        folder / "model",
        tmp_path / "nobody.csv",
        "--out",
        tmp_path / "out.csv",
    ]
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert "nobody.csv names no client (column user_id): all rows are predicted" in done.stderr
    assert set(pd.read_csv(tmp_path / "out.csv").prediction) == {unseen}
    arguments = ["predict", folder / "model", tmp_path / "three.csv"]
    with pytest.warns(ClientWarning) as told:
        done = CliRunner().invoke(app, [str(one) for one in [*arguments, "--interval", 0.9]])
    assert [str(one.message)[:50] for one in told] == [  # each once
        "1 of 3 rows name clients that the model does not k",
        "1 of 3 rows name no client: these rows are predict",
    ]
    printed = done.stdout.splitlines()
    assert printed[0].endswith(",prediction,prediction_low,prediction_high")
    assert len(printed) == 4


def test_ids_keep_their_zeros_from_fit_to_inspect(folder, tmp_path):
    ratings = pd.read_csv(folder / "ratings.csv")
    padded = ratings.assign(
        user_id=ratings.user_id.map("{:05d}".format), item_id=ratings.item_id.map("{:04d}".format)
    )
    padded.to_csv(tmp_path / "padded.csv", index=False)
    run("fit", tmp_path / "padded.csv", *COLUMNS, "--out", tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert {len(client) for client in model.clients_} == {5}
    assert all(f"item_id={item:04d}" in model.encoder_.names_global for item in ratings.item_id)
    found = json.loads(run("evaluate", tmp_path / "model", tmp_path / "padded.csv", "--json"))
    assert found["unseen_clients"] == 0
    first = json.loads(run("inspect", tmp_path / "model", "--client", "00007", "--json"))
    assert first["client"] == "00007"
    scored = pd.read_csv(
        StringIO(run("predict", tmp_path / "model", tmp_path / "padded.csv")), dtype=str
    )
    assert scored["item_id"].tolist() == padded["item_id"].tolist()
    features = padded[model.feature_names_in_]
    expected = model.predict(features, padded["user_id"])
    np.testing.assert_allclose(scored["prediction"].astype(float), expected)


def test_new_rows_from_standard_input(folder):
    new = (folder / "new.csv").read_text()
    with pytest.warns(ClientWarning, match="20 of 300 rows name clients"):
        done = CliRunner().invoke(app, ["predict", str(folder / "model"), "-"], input=new)
    assert done.stdout == run("predict", folder / "model", folder / "new.csv")
    with pytest.raises(ValueError, match=r"^standard input has no column 'item_id', which the mod"):
        raise (
            CliRunner()
            .invoke(app, ["evaluate", str(folder / "model"), "-"], input="user_id,rating\n1,2\n")
            .exception
        )


def test_inspect_shows_features_and_clients(folder):
    found = json.loads(run("inspect", folder / "model", "--json"))
    model = load_model(folder / "model")
    assert found["local"]["columns"] == ["genres"]
    assert found["global"]["columns"] == ["item_id", "genres", "year"]
    assert found["clients"] == len(model.clients_)
    norms = {client: model.local_models_[client].norm for client in model.clients_}
    first = found["leaning_on_local_model"][0]
    assert first["client"] == max(norms, key=norms.get)
    assert first["norm"] == pytest.approx(max(norms.values()))
    assert "lean on their local model" in run("inspect", folder / "model")
    assert "bad, fair, good" in run("inspect", folder / "classes")


def test_intervals_and_effects(folder, tmp_path):
    out = tmp_path / "out.csv"
    run("predict", folder / "model", folder / "new.csv", "--out", out, "--interval", 0.9)
    table = pd.read_csv(out)
    inside = table.rating.between(table.prediction_low, table.prediction_high)
    assert 0.84 < inside.mean() < 0.96
    effects = pd.read_csv(StringIO(run("inspect", folder / "model", "--effects")))
    pd.testing.assert_frame_equal(effects, load_model(folder / "model").effects_, check_dtype=False)
    own = run("inspect", folder / "model", "--effects", "--client", 7, "--json")
    assert {one["client"] for one in json.loads(own)} == {7}
    assert len(json.loads(own)) == (effects["client"] == 7).sum()
    assert "by empirical Bayes; of the variance, " in run("inspect", folder / "model")
    with pytest.raises(ValueError, match="classes have probabilities and no intervals"):
        run("predict", folder / "classes", folder / "new_liked.csv", "--interval", 0.9)


def test_a_model_with_an_offset_predicts_from_a_table_that_has_it(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"user": rng.integers(0, 5, 60), "x": rng.normal(size=60)})
    table["before"] = 100 * rng.normal(size=60)
    model = fedres.FedResRegressor(client="user", offset="before")
    model.fit(table, table.before + table.x).save(tmp_path / "model")
    table.to_csv(tmp_path / "new.csv", index=False)
    run("predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    said = pd.read_csv(tmp_path / "out.csv").prediction
    np.testing.assert_allclose(said, table.before + table.x, atol=0.5)


@pytest.mark.parametrize(("model", "client"), [("model", 7), ("classes", "u7")])
def test_inspect_shows_one_client(folder, model, client):
    found = json.loads(run("inspect", folder / model, "--client", client, "--json"))
    assert found["client"] == client
    whole = load_model(folder / model)
    own = whole.local_models_[client]
    assert found["local_norm"] == pytest.approx(own.norm)
    weights = {one["feature"]: one["weight"] for one in found["weights"]}
    assert weights["constant"] == pytest.approx(np.asarray(own.constant).tolist())
    assert len(weights) == len(own.names) + 1
    sizes = [np.linalg.norm(one["weight"]) for one in found["weights"]]
    assert sizes == sorted(sizes, reverse=True)
    assert f"Client {client}" in run("inspect", folder / model, "--client", client)


def test_svmlight_files_from_end_to_end(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.normal():.3f} qid:{i // 20} {1 + i % 3}:1 {4 + i % 5}:{rng.random():.2f}"
        for i in range(200)
    ]
    (tmp_path / "train.svm").write_text("\n".join(lines))
    (tmp_path / "new.svm").write_text("\n".join(lines[:10]))  # it lacks the last columns
    run("fit", tmp_path / "train.svm", "--client", "qid", "--label", "y", "--out", tmp_path / "m")
    found = json.loads(run("evaluate", tmp_path / "m", tmp_path / "new.svm", "--json"))
    assert (found["rows"], found["unseen_clients"]) == (10, 0)
    printed = run("predict", tmp_path / "m", tmp_path / "new.svm").splitlines()
    assert printed[0] == "client,prediction"
    assert len(printed) == 11


def test_a_model_saved_in_python_predicts(tmp_path):
    table = generate(users=5, items=6, rows=80)
    model = FedResRegressor(client="user_id", local_features=["genres"])
    model.fit(table.drop(columns=["rating", "timestamp"]), table.rating).save(tmp_path / "model")
    table.to_csv(tmp_path / "table.csv", index=False)
    assert run("predict", tmp_path / "model", tmp_path / "table.csv").count("\n") == 81
    with pytest.raises(ValueError, match="saved in Python and does not know which column is the"):
        run("evaluate", tmp_path / "model", tmp_path / "table.csv")


def test_a_model_goes_on_learning_in_python_and_is_evaluated_again(folder, tmp_path):
    model, new = load_model(folder / "model"), pd.read_csv(folder / "new.csv")
    x = new[model.feature_names_in_]
    model.partial_fit(x, new.rating, new.user_id).save(tmp_path / "model")
    found = json.loads(run("evaluate", tmp_path / "model", folder / "new.csv", "--json"))
    assert found["unseen_clients"] == 0
    assert found["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(new.rating, model.predict(x, new.user_id))
    )


@pytest.mark.parametrize("method", ["central", "independent"])
def test_models_of_one_side_are_inspected(method, tmp_path):
    table = generate(users=5, items=6, rows=80)
    model = FedResRegressor(method=method, client="user_id")
    model.fit(table[["genres", "year", "user_id"]], table.rating).save(tmp_path)
    found = json.loads(run("inspect", tmp_path, "--json"))
    assert found["clients"] == 5
    assert found["method"] == method
    assert len(found["leaning_on_local_model"]) == (0 if method == "central" else 5)
    assert found["local"]["columns"] == ([] if method == "central" else ["genres", "year"])
    assert f"method    {method}, solver" in run("inspect", tmp_path)
    if method == "central":
        with pytest.raises(ValueError, match="is central: it has no local models"):
            run("inspect", tmp_path, "--client", "1")
    else:
        assert "Client 1:" in run("inspect", tmp_path, "--client", "1")


def test_ratings_are_generated(tmp_path):
    out = tmp_path / "ratings.parquet"
    run("data", "ratings", "--users", "3", "--items", "4", "--rows", "9", "--out", out)
    pd.testing.assert_frame_equal(pd.read_parquet(out), generate(3, 4, 9))


def test_the_last_ratings_may_be_generated_as_new_rows(tmp_path):
    out, new = tmp_path / "ratings.csv", tmp_path / "new.csv"
    said = run("data", "ratings", "--users", "3", "--rows", "20", "--out", out, "--new", new)
    assert said.split("\n")[:2] == [f"{out}: 18 ratings", f"{new}: 2 ratings"]
    both = pd.concat([pd.read_csv(out), pd.read_csv(new)], ignore_index=True)
    pd.testing.assert_frame_equal(both, generate(3, rows=20))
    with pytest.raises(ValueError, match=r"name a \.csv or \.parquet file"):
        run("data", "ratings", "--out", out, "--new", tmp_path / "new.txt")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, [], "there is no file"),
        ("", [], "ratings.csv"),
        ("user_id,rating\n", [], "column names and no rows"),
        ("user,rating,x\na,1,2\n", [], "has no column 'user_id' for the client"),
        ("user_id,stars,x\na,1,2\n", [], "has no column 'rating' for the label"),
        ("user_id,rating,x\na,1,2\nb,,2\n", [], "line 3 has no value for its label"),
        ("user_id,rating,x\na,1,2\n,3,2\n", [], "line 3 has no value for its client"),
        (
            "user_id,rating,x\na,yes,2\nb,yes,3\na,yes,4\na,yes,1\n",
            [],
            "the label is 'yes' in every row",
        ),
        (
            "user_id,rating,x\na,1,2\nb,2,3\na,3,1\n",
            ["--local", "y"],
            "local names 'y', but the columns",
        ),
        ("user_id,rating,x\na,1,2\nb,2,3\n", ["--task", "both"], "unknown task 'both'"),
        (
            "user_id,rating,x\na,u,2\nb,v,3\na,u,2\n",
            ["--task", "numbers"],
            "such as 'u' are no numbers",
        ),
        ("user_id,rating,x\na,1,2\nb,2,3\nc,4,1\n", [], "each of the 3 clients has one row"),
        ("user_id,rating,x\na,1,2\na,1,3\n", [], "the label is 1 in every row"),
        ("user_id,rating,x\na,1,2\n", ["--label", "user_id"], "client and label are both column"),
        (
            "user_id,rating\na,1\nb,2\na,3\n",
            [],
            "there is no column left to learn from besides client and label",
        ),
        ("user_id,rating,x\na,1,2\n", ["--report", "/no/such/page.html"], "cannot write /no/such"),
    ],
)
def test_mistakes_of_fit_are_one_sentence(text, options, message, tmp_path):
    path, out = tmp_path / "ratings.csv", tmp_path / "model"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        run("fit", path, "--client", "user_id", "--label", "rating", "--out", out, *options)
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_fit_refuses_to_write_over_anything_but_a_model(folder, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out, message in [
        (tmp_path / "file", "file is a file: name a folder"),
        (tmp_path, "holds file and no model"),
    ]:
        with pytest.raises(ValueError, match=message):
            run("fit", folder / "ratings.csv", *COLUMNS, "--out", out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "nothing", "new.csv"], "nothing holds no model"),
        (["evaluate", "model", "none.csv"], "there is no file"),
        (["evaluate", "model", "unlabelled.csv"], "has no column 'rating' for the label"),
        (["evaluate", "model", "words.csv"], "words.csv: column 'rating' has 'good' in line 2"),
        (["evaluate", "classes", "new.csv"], "line 2 has the label '"),
        (["predict", "model", "narrow.csv"], "has no column 'genres', which the model needs"),
        (["predict", "model", "scored.csv"], "has a column 'prediction' already"),
        (["predict", "model", "new.csv", "--out", "out.txt"], "name a .csv or .parquet file"),
        (["predict", "model", "new.csv", "--out", "no/out.csv"], "in a folder that exists"),
        (["predict", "broken", "new.csv"], "is damaged"),
        (["inspect", "broken"], "is damaged"),
        (["inspect", "nothing"], "nothing holds no model"),
        (["inspect", "model", "--client", "zoe"], "knows no client 'zoe', such as "),
        (["inspect", "model", "--client", "123456"], "knows no client 123456"),
        (["compare", "--data", "new.csv", "--client", "user_id"], "without --label"),
        (["compare", "--label", "rating"], "--label is for a table: give --client too"),
        (["compare", "--client", "a", "--label", "b", "--delay", "3"], "--delay is for named data"),
        (["data", "ratings", "--rows", "5", "--out", "r.csv"], "need a user, an item and a row"),
    ],
)
def test_mistakes_with_models_are_one_sentence(folder, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    new = pd.read_csv(folder / "new.csv")
    new.to_csv("new.csv", index=False)
    new.drop(columns="rating").to_csv("unlabelled.csv", index=False)
    new.drop(columns="genres").to_csv("narrow.csv", index=False)
    new.assign(rating="good").to_csv("words.csv", index=False)
    new.assign(prediction=1.0).to_csv("scored.csv", index=False)
    for name in ("model", "classes"):
        (tmp_path / name).symlink_to(folder / name)
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (folder / "model").iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=message) as error:
        run(*arguments)
    assert "\n" not in str(error.value)


def test_the_report_is_for_phones_and_dark_pages_and_has_no_none(folder, tmp_path):
    run(
        "fit",
        folder / "ratings.csv",
        *COLUMNS,
        "--out",
        tmp_path / "m",
        "--report",
        tmp_path / "r.html",
    )
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in page
    assert '<meta name="viewport"' in page
    assert page.count("<table") == page.count('<div class="scroll"><table')
    assert "None" not in page.split("<h2>Protocol</h2>")[1]


# New tables that are not like the one that was learned from


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A model of clients, times and numbers."""
    folder = tmp_path_factory.mktemp("timed")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": rng.integers(0, 5, 200), "x": rng.normal(size=200)})
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, 200), "D")
    frame["y"] = frame["x"] + frame["user"]
    frame.to_parquet(folder / "table.parquet")
    run("fit", folder / "table.parquet", "--client", "user", "--label", "y", "--out",
        folder / "model")  # fmt: skip
    return folder, frame


BATCHES = pytest.mark.parametrize("memory", [(), ("--memory", "1GB")], ids=["memory", "batches"])


@BATCHES
def test_times_and_plain_numbers_are_not_taken_for_each_other(timed, tmp_path, memory):
    folder, frame = timed
    day = frame["day"].astype("datetime64[ms]").astype(np.int64)
    for name, new in (("day", day), ("x", frame["day"])):
        frame.assign(**{name: new}).to_parquet(tmp_path / "new.parquet")
        for command in ("predict", "evaluate"):
            with pytest.raises(
                ValueError, match=f"new.parquet: column '{name}' holds .* and held .* when"
            ):
                run(command, folder / "model", tmp_path / "new.parquet", *memory)


def test_encoders_that_do_not_know_of_times_are_read():
    described = {"kind": "number", "name": "age", "mean": 1.0, "scale": 2.0, "missing": False}
    column = recall(described)
    assert describe(column) == described
    assert len(column.features(pd.Series(pd.to_datetime(["2020-01-01"]))).values) == 1


@BATCHES
def test_columns_that_the_model_does_not_need_may_be_anything(timed, tmp_path, memory):
    folder, frame = timed
    odd = frame.assign(odd=[{"a": 1}] * 200, raw=[b"xx"] * 200)
    odd.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "out.parquet"
    run("predict", folder / "model", tmp_path / "new.parquet", "--out", out, *memory)
    assert pd.read_parquet(out)["odd"].tolist() == [{"a": 1}] * 200


@BATCHES
def test_tables_without_rows_are_refused(timed, tmp_path, memory):
    folder, frame = timed
    frame[:0].to_csv(tmp_path / "new.csv", index=False)
    for command in (("predict", "--out", tmp_path / "out.csv"), ("evaluate",)):
        with pytest.raises(ValueError, match=r"new.csv has column names and no rows"):
            run(command[0], folder / "model", tmp_path / "new.csv", *command[1:], *memory)
    assert not (tmp_path / "out.csv").exists()


@BATCHES
def test_predict_does_not_write_over_its_table(timed, tmp_path, memory):
    folder, frame = timed
    frame.to_csv(tmp_path / "new.csv", index=False)
    before = (tmp_path / "new.csv").read_bytes()
    for table, out in (("new.csv", "new.csv"), ("n*.csv", "new.csv"), ("", "other.csv")):
        with pytest.raises(ValueError, match=r"cannot write .*, which belongs to the table"):
            run("predict", folder / "model", tmp_path / table, "--out", tmp_path / out, *memory)
    assert (tmp_path / "new.csv").read_bytes() == before


@BATCHES
def test_large_ids_and_missing_numbers_are_written_as_they_were(timed, tmp_path, memory):
    folder, frame = timed
    ids = pd.array([2**60 + 1, None] * 100, "Int64")
    frame.assign(code=ids).to_parquet(tmp_path / "new.parquet")
    run("predict", folder / "model", tmp_path / "new.parquet", "--out", tmp_path / "o.csv", *memory)
    codes = pd.read_csv(tmp_path / "o.csv", dtype=str)["code"]
    assert codes.fillna("").tolist() == [str(2**60 + 1), ""] * 100


@BATCHES
@pytest.mark.parametrize(
    ("column", "options", "words"),
    [
        ({"y": [["a"], ["b"]]}, (), "are lists, and a label is a number or a class|holds lists"),
        ({"y": pd.to_datetime(["2020-01-01", "2020-01-02"])}, (), "are times, and a label is"),
        ({"y": pd.to_timedelta([1, 2], "s")}, (), "are times, and a label is"),
        ({"user": [["a"], ["b"]]}, (), "holds lists, and a client is one value"),
        ({"when": ["soon", "late"]}, ("--time", "when"), "'soon' .* is not a number"),
    ],
)
def test_columns_that_cannot_be_what_they_are_named_are_refused_before_work(
    tmp_path, memory, column, options, words
):
    table = {"user": [1, 2], "x": [0.5, 1.5], "y": [1.0, 2.0], **column}
    pd.DataFrame({name: [*values] * 50 for name, values in table.items()}).to_parquet(
        tmp_path / "a.parquet"
    )
    with pytest.raises(ValueError, match=f"a.parquet.*({words})|{words}"):
        run("fit", tmp_path / "a.parquet", "--client", "user", "--label", "y", *options, *memory,
            "--out", tmp_path / "model")  # fmt: skip


def test_labels_of_unknown_classes_are_quoted_shortly(folder, tmp_path):
    new = pd.read_csv(folder / "new_liked.csv").assign(rating="secret" * 99)
    new.to_csv(tmp_path / "new.csv", index=False)
    for memory in ((), ("--memory", "1GB")):
        with pytest.raises(ValueError, match=r"has the label 'secret.*\.\.\., and the cl") as error:
            run("evaluate", folder / "classes", tmp_path / "new.csv", *memory)
        assert str(error.value).count("secret") <= 10


def test_names_of_columns_are_listed_shortly(folder, tmp_path):
    pd.DataFrame({f"secret {i}": [i] for i in range(500)}).to_csv(tmp_path / "a.csv", index=False)
    for command in (
        ("fit", tmp_path / "a.csv", *COLUMNS, "--out", tmp_path / "model"),
        ("predict", folder / "model", tmp_path / "a.csv"),
    ):
        with pytest.raises(ValueError, match="has no column") as error:
            run(*command)
        assert str(error.value).count("secret") < 30


def test_ids_of_any_size_and_uuids_are_clients_in_python():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1))
    for ids in (
        np.array([2**63 + 7, 2**63 + 9] * 20, np.uint64),
        [UUID(int=7), UUID(int=8)] * 20,
        [UUID(int=7).bytes, UUID(int=8).bytes] * 20,
    ):
        model = FedResRegressor().fit(x, rng.normal(size=40), ids)
        assert len(model.clients_) == 2
        assert len(model.predict(x[:2], ids[:2])) == 2


@pytest.mark.parametrize("estimator", [fedres.FedResRegressor, fedres.FedResClassifier])
def test_labels_that_are_times_are_refused_in_python(estimator):
    days = np.array(["2020-01-01", "2020-01-02"] * 9, "datetime64[D]")
    with pytest.raises(ValueError, match="are times, and a label is a number or a class"):
        estimator().fit(np.ones((18, 1)), days, [1] * 18)
