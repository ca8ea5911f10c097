"""A generated set of film ratings: a shared part, and a personal one for each user."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# fmt: off
GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
    "War", "Western",
)
# fmt: on
FIRST_DAY, DAYS = 1_262_304_000, 3652  # the ten years from 2010 on
SECONDS = 86_400


def generate(
    users: int = 1000, items: int = 1700, rows: int = 100_000, seed: int = 0
) -> "pd.DataFrame":
    """Ratings of films, in the order of time.

    A rating is the film's quality, its age and the appeal of its genres, the same for all, plus
    the mood of the user and their own taste for these genres, plus noise. A few films get most of
    the ratings, and a few users give most of them; each user gives at least one.

    Parameters
    ----------
    users, items, rows
        How many users, films and ratings.
    seed
        Decides everything.

    Examples
    --------
    >>> generate(users=2, items=9, rows=3)
       user_id  item_id                genres  year   timestamp  rating
    0        2        8  Comedy|Drama|Musical  1994  1517542756     3.0
    1        2        1                Action  1981  1547885126     5.0
    2        1        7          Comedy|Drama  1996  1574069692     3.0
    """
    import pandas as pd

    if min(users, items) < 1 or rows < users:
        raise ValueError(
            f"need a user, an item and a row a user at least, not {users} users, {items} items "
            f"and {rows} rows"
        )
    rng = np.random.default_rng(seed)
    has_genre = _genres(items, rng)
    quality = rng.normal(0, 0.5, items)
    appeal = rng.normal(0, 0.2, len(GENRES))
    year = 2010 - rng.gamma(2, 10, items).astype(np.int64)
    mood = rng.normal(0, 0.3, users)
    taste = rng.normal(0, 0.8, (users, len(GENRES)))

    activity = rng.lognormal(0, 1.2, users)
    extra = rng.choice(users, rows - users, p=activity / activity.sum())
    user = np.concatenate([np.arange(users), extra])
    fame = 1 / (10 + rng.permutation(items))
    item = rng.choice(items, rows, p=fame / fame.sum())
    began = DAYS * rng.beta(1, 3, users)[user]
    day = began + (DAYS - began) * rng.random(rows)
    timestamp = FIRST_DAY + (day * SECONDS).astype(np.int64)

    share = has_genre / has_genre.sum(axis=1, keepdims=True)
    personal = mood[user] + (taste[user] * share[item]).sum(axis=1)
    shared = 3.5 + quality[item] + share[item] @ appeal + 0.01 * (2000 - year[item])
    rating = shared + personal + rng.normal(0, 0.5, rows)
    joined = np.array(
        [
            "|".join(genre for genre, has in zip(GENRES, row, strict=True) if has)
            for row in has_genre
        ]
    )
    frame = pd.DataFrame(
        {
            "user_id": user + 1,
            "item_id": item + 1,
            "genres": joined[item],
            "year": year[item],
            "timestamp": timestamp,
            "rating": np.clip(np.round(rating * 2) / 2, 1, 5),
        }
    )
    return frame.sort_values("timestamp", kind="stable", ignore_index=True)


def _genres(items: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which one to three genres each film has; some genres are more common than others."""
    common = -np.log(3 + rng.permutation(len(GENRES)))
    drawn = np.argsort(-common - rng.gumbel(size=(items, len(GENRES))), axis=1)
    number = rng.integers(1, 4, (items, 1))
    has_genre = np.zeros(drawn.shape, bool)
    np.put_along_axis(has_genre, drawn, np.arange(len(GENRES)) < number, axis=1)
    return has_genre
