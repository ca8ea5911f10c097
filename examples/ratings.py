"""From a table of ratings to a model in use: compare, fit, save, load, go on learning.

The table is generated: users rate films; a film's quality is the same for all, the taste for
genres is each user's own. Most users have few ratings.

    python examples/ratings.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.metrics import root_mean_squared_error

from fedres import FedResRegressor, compare, load_model
from fedres.tables.ratings import generate


def main(users: int = 300, items: int = 400, rows: int = 20_000) -> dict[str, float]:
    """Print what each step finds; return the errors on new rows of the stages of the model."""
    ratings = generate(users, items, rows)
    first, second = rows * 6 // 10, rows * 8 // 10
    past, present, future = ratings[:first], ratings[first:second], ratings[second:]

    def parts(table):
        return table[["item_id", "genres", "year"]], table["rating"], table["user_id"]

    model = FedResRegressor(
        client="user_id", categorical_features=["item_id"], local_features=["genres"]
    )
    found = compare(past, client="user_id", label="rating", time="timestamp", model=model)
    print(found.verdict())

    model.fit(*parts(past))
    user = past["user_id"].mode()[0]
    print(f"User {user} differs from others most in:")
    print(model.local_models_[user].table().sort_values(key=abs, ascending=False).head(3))

    def error(model):
        X, y, user = parts(future)
        return float(root_mean_squared_error(y, model.predict(X, client=user)))

    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = load_model(Path(folder) / "model")
    errors = {"as saved": error(loaded)}
    loaded.partial_fit(*parts(present))
    errors["after another fifth of the rows"] = error(loaded)
    # Now rating by rating, each predicted before it is learned from.
    squares = []
    for row in future.to_dict("records"):
        y = row.pop("rating")
        squares.append((loaded.predict_one(row) - y) ** 2)
        loaded.learn_one(row, y)
    errors["learning from each rating as it comes"] = (sum(squares) / len(squares)) ** 0.5
    for stage, rmse in errors.items():
        print(f"RMSE on the last fifth, {stage}: {rmse:.3f}")
    return errors


if __name__ == "__main__":
    main()
