import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedres.bandits import BanditClient, EpsilonGreedy, Greedy, Softmax, SquareCB
from fedres.bandits.choosing import pick
from fedres.core.messages import GlobalModel

POLICIES = [
    Greedy(),
    EpsilonGreedy(epsilon=0.3),
    EpsilonGreedy(explore_every=4),
    SquareCB(gamma=2.0),
    Softmax(temperature=0.5),
]


class Given:
    """Draws that were written down beforehand."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)


@pytest.mark.parametrize(
    ("policy", "turn", "scores", "expected"),
    [
        (Greedy(), 1, [0.1, 0.3, 0.2], [0, 1, 0]),
        (Greedy(), 1, [0.3, 0.3, 0.2, 0.3], [1 / 3, 1 / 3, 0, 1 / 3]),
        (EpsilonGreedy(epsilon=0.3), 9, [0.1, 0.3, 0.2], [0.1, 0.8, 0.1]),
        (EpsilonGreedy(epsilon=0.3), 9, [0.3, 0.3, 0.2], [0.45, 0.45, 0.1]),
        (EpsilonGreedy(epsilon=1.0), 9, [0.1, 0.3], [0.5, 0.5]),
        (EpsilonGreedy(explore_every=5), 4, [0.1, 0.3], [0, 1]),
        (EpsilonGreedy(explore_every=5), 5, [0.1, 0.3], [0.5, 0.5]),
        (EpsilonGreedy(explore_every=5), 6, [0.3, 0.3], [0.5, 0.5]),
        (EpsilonGreedy(explore_every=5), 10, [0.3, 0.3, 0.1], [1 / 3, 1 / 3, 1 / 3]),
        # g = 4 * sqrt(4) = 8, gaps 1/2 and 3/4: 1 / (3 + 4) and 1 / (3 + 6)
        (SquareCB(gamma=4.0), 4, [0.5, 0.25, 1.0], [1 / 7, 1 / 9, 47 / 63]),
        # the same with nine clients that share a model, and a third of gamma
        (SquareCB(4 / 3, clients=9), 4, [0.5, 0.25, 1.0], [1 / 7, 1 / 9, 47 / 63]),
        (SquareCB(4 / 3).shared_by(9), 4, [0.5, 0.25, 1.0], [1 / 7, 1 / 9, 47 / 63]),
        # g = 4, gap 1/2: 1 / (3 + 2); the two best share the rest
        (SquareCB(gamma=4.0, exponent=0.0), 100, [1.0, 1.0, 0.5], [0.4, 0.4, 0.2]),
        (SquareCB(), 1, [0.0, 0.0], [0.5, 0.5]),
        (Softmax(temperature=0.5), 3, np.log([1, 2, 3]) / 2, [1 / 6, 2 / 6, 3 / 6]),
        (Softmax(temperature=0.1), 3, [0.7, 0.7], [0.5, 0.5]),
        (Softmax(temperature=1e-3), 3, [-1e4, 1e4], [0, 1]),
    ],
)
def test_probabilities_worked_by_hand(policy, turn, scores, expected):
    np.testing.assert_allclose(policy.probabilities(scores, turn), expected, atol=1e-15)


def test_ties_of_squarecb_are_the_mean_over_which_one_is_best():
    scores, policy = np.array([0.9, 0.2, 0.9, 0.9, 0.5]), SquareCB(gamma=7.0)
    others = 1 / (5 + 7.0 * np.sqrt(3) * (0.9 - scores))
    each = []
    for best in (0, 2, 3):
        probabilities = others.copy()
        probabilities[best] += 1 - others.sum()
        each.append(probabilities)
    np.testing.assert_allclose(policy.probabilities(scores, 3), np.mean(each, axis=0))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_one_action_is_certain(policy):
    assert policy.probabilities([-3.0], 4).tolist() == [1.0]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 3.0]), min_size=1, max_size=8),
    turn=st.integers(1, 10_000),
    order=st.randoms(use_true_random=False),
)
def test_probabilities_sum_to_one_and_follow_the_scores(policy, scores, turn, order):
    probabilities = policy.probabilities(scores, turn)
    assert probabilities.sum() == pytest.approx(1)
    assert (probabilities >= 0).all()
    rising = probabilities[np.argsort(scores, kind="stable")]
    assert (np.diff(rising) >= -1e-12).all()  # a better score is never less probable
    shuffled = order.sample(range(len(scores)), len(scores))
    np.testing.assert_allclose(
        policy.probabilities(np.array(scores)[shuffled], turn), probabilities[shuffled]
    )


@pytest.mark.parametrize("policy", [*POLICIES, SquareCB(gamma=3.0, exponent=0.0)], ids=str)
def test_frequencies_match_the_reported_probabilities(policy):
    client = BanditClient(policy, features_local=0, seed=11)
    client.refresh(GlobalModel(1, np.float32([1.0, 0.0]), -np.inf, np.inf))
    taken, expected = np.zeros(4), np.zeros(4)
    for _ in range(4000):
        decision = client.choose([[0.2], [0.5], [0.5], [0.1]])
        taken[decision.action] += 1
        expected += decision.probabilities
    possible = expected > 0
    assert taken[~possible].sum() == 0
    assert chisquare(taken[possible], expected[possible]).pvalue > 1e-3


def test_one_draw_picks_the_first_action_whose_cumulative_probability_exceeds_it():
    policy, scores = Softmax(temperature=1.0), np.log([1.0, 1.0, 2.0])
    actions = [policy.draw(scores, 1, Given(u)).action for u in (0.0, 0.24, 0.26, 0.49, 0.51)]
    assert actions == [0, 0, 1, 1, 2]
    halves = np.array([0.0, 0.5, 0.0, 0.5])
    assert [pick(halves, u) for u in (0.0, 0.5)] == [1, 3]


def test_epsilon_draws_first_whether_to_explore_then_the_action():
    policy, scores = EpsilonGreedy(epsilon=0.3), [0.1, 0.9, 0.2]
    explored = policy.draw(scores, 1, Given(0.29, 0.99))
    greedy = policy.draw(scores, 1, Given(0.3, 0.99))
    assert (explored.action, explored.explores) == (2, True)
    assert (greedy.action, greedy.explores) == (1, False)
    np.testing.assert_allclose(explored.probabilities, [0.1, 0.8, 0.1])
    np.testing.assert_array_equal(explored.probabilities, greedy.probabilities)


def test_rounding_never_picks_an_action_without_probability():
    probabilities = np.array([0.1] * 10 + [0.0])
    assert np.cumsum(probabilities)[-1] < 1
    assert pick(probabilities, 1 - 2**-53) == 9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (EpsilonGreedy, "exactly one"),
        (lambda: EpsilonGreedy(0.1, 10), "exactly one"),
        (lambda: EpsilonGreedy(epsilon=1.5), "1.5"),
        (lambda: EpsilonGreedy(epsilon=np.nan), "nan"),
        (lambda: EpsilonGreedy(explore_every=0), "not 0"),
        (lambda: EpsilonGreedy(explore_every=2.5), "not 2.5"),
        (lambda: SquareCB(gamma=0.0), "gamma"),
        (lambda: SquareCB(gamma=np.inf), "gamma"),
        (lambda: SquareCB(exponent=-1.0), "exponent"),
        (lambda: SquareCB(clients=0), "clients must be 1"),
        (lambda: Softmax(temperature=0.0), "temperature"),
        (lambda: Greedy().probabilities([], 1), "shape"),
        (lambda: Greedy().probabilities([[1.0]], 1), "shape"),
        (lambda: Greedy().probabilities([0.1, np.nan], 1), "action 1 is nan"),
        (lambda: SquareCB().probabilities([0.1], 0), "turn"),
    ],
)
def test_bad_parameters_and_scores_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
