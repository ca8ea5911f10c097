"""The bandit client (Agarwal, Langford and Wei, 2020, section 5).

When a client chooses, the policy draws an action by the scores

    f(x^g(a); w^g) + f(x^l(a); w_i)

of all actions a. When the reward r of action a comes, client and server take their steps of
FedRes.SGD on (r - score of a)^2, on the models of that moment (alignment ``arrival``); or they
solve for all rewards so far (`fedres.core.ridge`).
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Real
from pathlib import Path
from threading import RLock
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from fedres.bandits.decisions import Contexts, Decision, as_contexts, joint_scores
from fedres.bandits.learners import (
    LEARNERS,
    STEP,
    Learner,
    check_errors,
    features_of,
    new_client,
)
from fedres.bandits.logs import Event
from fedres.bandits.mixed_rewards import MixedRewards
from fedres.bandits.pending import Pending, Unrewarded
from fedres.bandits.policies import (
    EpsilonGreedy,
    Greedy,
    LinUCB,
    Policy,
    Softmax,
    SquareCB,
    Thompson,
    Uniforms,
)
from fedres.bandits.saving import (
    as_fact,
    check_kind,
    from_fact,
    generator_from,
    generator_state,
    named,
    pack_rows,
    part,
    unpack_rows,
)
from fedres.core.messages import GlobalModel, Upload
from fedres.core.parties import Client
from fedres.core.receipts import Receipt, Ticket, new_epoch, number_of
from fedres.core.ridge_parties import RidgeClient
from fedres.core.state_files import Arrays, read, write
from fedres.core.types import F32, Matrix

LearnFrom = Literal["all", "exploration"]

LARGEST = float(np.finfo(np.float32).max)  # reward

KIND = "bandit client"
POLICIES = (EpsilonGreedy, Greedy, Softmax, SquareCB, LinUCB, Thompson)


class Counts(NamedTuple):
    """Decisions so far: made = rewarded + expired + pending; learned from."""

    made: int
    rewarded: int
    expired: int
    learned: int


class BanditClient:
    """Chooses actions, and learns from their rewards. Threads may share one.

    Parameters
    ----------
    policy
        How it explores.
    features_local
        Number of local features; 0 for no local model (Central).
    features_global
        Number of global features; 0 for no global model (Independent). None to learn it from
        the first contexts or the first `refresh`.
    client
        Its number or name, in its events and the ids of its decisions.
    seed
        A number, or a source of draws; see the policy for how they are used. None for other
        choices in every run.
    learn_from
        "all" decisions, or only those of pure "exploration" as in the paper.
    step
        How the local model moves: along gradients, or as a `Ridge`, which policies need that have
        to know how sure scores are. The server's must be of the same kind.
    window
        For how many seconds a decision waits for its reward; until then it is taken, however
        late. None: as long as `wait` and `most_pending` allow.
    wait
        For how many further decisions of this client one waits for its reward. None: as long as
        there is room.
    late
        What a decision without reward in time counts as: a reward to learn from, such as 0 for
        "no click", or None to drop it.
    most_pending
        How many decisions wait at most: with one more, the oldest expires.
    mix
        The lowest and the highest reward there can be, to mix what FedRes predicts with what a
        model of the client's own and the shared one alone predict, and never to predict much worse
        than the best of these (`fedres.bandits.mixed_rewards`); for what is mixed, rewards beyond
        are brought into that range. None to go by FedRes.
    log
        Called with the `Event` of every decision once it is rewarded or expired, as `EventLog`
        or a list's `append`. The contexts of all actions are then kept until that moment,
        otherwise only those of the chosen one.
    clock
        Gives the time in seconds. Windows outlast a restart if it does, as the time of day.

    Examples
    --------
    >>> from fedres.bandits import BanditServer, EpsilonGreedy
    >>> rng = np.random.default_rng(0)
    >>> server = BanditServer(features_global=2)
    >>> client = BanditClient(EpsilonGreedy(explore_every=20), features_local=1, seed=7)
    >>> for _ in range(200):
    ...     contexts_global, contexts_local = rng.normal(size=(3, 2)), rng.normal(size=(3, 1))
    ...     decision = client.choose(contexts_global, contexts_local)
    ...     client.reward(decision.id, contexts_local[decision.action, 0])
    ...     client.confirm(server.apply(client.uploads()))
    ...     client.refresh(server.publish())
    >>> client.choose(np.zeros((3, 2)), [[0.0], [1.0], [0.5]]).action
    1
    >>> client.counts
    Counts(made=201, rewarded=200, expired=0, learned=200)
    """

    def __init__(
        self,
        policy: Policy,
        features_local: int,
        features_global: int | None = None,
        client: int | str = 0,
        seed: int | Uniforms | None = None,
        learn_from: LearnFrom = "all",
        step: Learner = STEP,
        window: float | None = None,
        wait: int | None = None,
        late: float | None = None,
        most_pending: int = 10_000,
        mix: tuple[float, float] | None = None,
        log: Callable[[Event], object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if features_local < 0 or (features_global or 0) < 0:
            raise ValueError(
                f"features_local={features_local} and features_global={features_global}: "
                "numbers of features must not be negative"
            )
        if learn_from not in get_args(LearnFrom):
            raise ValueError(f"learn_from must be 'all' or 'exploration', not {learn_from!r}")
        if learn_from == "exploration" and not policy.has_exploration:
            raise ValueError(
                f"{policy} has no rounds of pure exploration to learn from: "
                "use EpsilonGreedy, or learn_from='all'"
            )
        check_errors(policy, step)
        if late is not None:
            _check_reward(late)
        if mix is not None:
            for reward in mix:
                _check_reward(reward)
            if not mix[0] < mix[1]:
                raise ValueError(f"mix is the lowest reward and the highest, not {mix}")
            if policy.needs_errors:
                raise ValueError(f"{policy} needs the standard errors of scores, which mix has not")
        client = client if isinstance(client, str) else int(client)
        self._late = None if late is None else float(late)
        self._options: dict[str, Any] = {
            "features_local": int(features_local),
            "client": client,
            "learn_from": learn_from,
            "window": None if window is None else float(window),
            "wait": None if wait is None else int(wait),
            "late": self._late,
            "most_pending": int(most_pending),
            "mix": None if mix is None else [float(mix[0]), float(mix[1])],
        }
        self.policy = policy
        self.client = client
        self.learn_from = learn_from
        self._features_local = features_local
        self._step = step
        self._models = None if features_global is None else self._new_models(features_global)
        self._rng = seed if isinstance(seed, Uniforms) else np.random.default_rng(seed)
        self._log = log
        self._clock = clock
        self._pending = Pending(client, window, wait, most_pending)
        self._outbox: dict[int, Upload] = {}
        self._sender = self._sent = new_epoch()
        self._lock = RLock()
        self._rewarded = self._learned = 0
        self._mixed: MixedRewards | None = None

    @property
    def pending(self) -> int:
        """How many decisions wait for their reward."""
        return len(self._pending)

    @property
    def waiting(self) -> list[Decision]:
        """The decisions that wait for their reward, oldest first."""
        with self._lock:
            return [one.decision for one in self._pending.waiting.values()]

    @property
    def counts(self) -> Counts:
        """How many decisions were made, rewarded, expired and learned from."""
        with self._lock:
            made = self._pending.made
            expired = made - self._rewarded - self.pending
            return Counts(made, self._rewarded, expired, self._learned)

    @property
    def w_local(self) -> F32:
        """The local model, the constant's weight last."""
        return self._models_for(0).local.weights.copy()

    def choose(self, contexts_global: Contexts, contexts_local: Contexts = None) -> Decision:
        """Choose an action for contexts with one row an action, dense or sparse, in both views.

        None stands for a view without features. Decisions whose window has closed are settled
        first; one that expires because it has waited for `wait` decisions, after the choice.
        """
        x_global, x_local = as_contexts(contexts_global, contexts_local)
        with self._lock:
            return self._choose(x_global, x_local)

    def _choose(self, x_global: Matrix, x_local: Matrix) -> Decision:
        now = self.settle()
        models = self._models_for(x_global.shape[1])
        scores = joint_scores(x_global, x_local, models.global_.weights, models.local.weights)
        if (mixed := self._mixed_with(models)) is not None:
            scores = mixed.scores(models, x_global, x_local)
        turn = self._pending.made + 1
        if isinstance(models, RidgeClient) and self.policy.needs_errors:
            errors = models.errors(x_global, x_local)
            draw = self.policy.draw(scores, turn, self._rng, errors)
        else:
            draw = self.policy.draw(scores, turn, self._rng)
        self._models, self._mixed = models, mixed
        model = models.epoch, models.version
        decision = Decision(self._pending.next_id(), turn, *draw, now, model)
        chosen = slice(draw.action, draw.action + 1)
        logged = (x_global.copy(), x_local.copy()) if self._log is not None else None
        over = self._pending.add(
            Unrewarded(decision, x_global[chosen].copy(), x_local[chosen].copy(), logged)
        )
        if over is not None:
            self._settle(over, self._late, expired=True)
        return decision

    def reward(self, decision_id: str, reward: float) -> None:
        """Learn what the decision of that id brought: any finite number, once, in any order.

        A `RewardError` says why a reward is not taken.
        """
        _check_reward(reward)
        with self._lock:
            self.settle()
            waiting = self._pending.take(decision_id)
            self._rewarded += 1
            self._settle(waiting, float(reward))

    def settle(self) -> float:
        """End the wait of decisions whose window has closed; the time it is.

        Every choice and every reward does so by itself; call it where there are none for long.
        """
        with self._lock:
            now = float(self._clock())
            while self._pending.closed(now):
                self._settle(self._pending.expire_oldest(), self._late, expired=True)
            return now

    def expire(self) -> None:
        """Wait no longer for any decision, as before a client is closed for good."""
        with self._lock:
            while self.pending:
                self._settle(self._pending.expire_oldest(), self._late, expired=True)

    def uploads(self) -> list[Upload]:
        """What the server has not confirmed, oldest first: to be sent until it has."""
        with self._lock:
            oldest = next(iter(self._outbox), self._sent + 1)
            return [
                replace(upload, ticket=Ticket(self._sender, serial, oldest))
                for serial, upload in self._outbox.items()
            ]

    def confirm(self, receipts: Iterable[Receipt]) -> None:
        """Forget the uploads that the server has; receipts of other clients do not matter."""
        with self._lock:
            for sender, serial in receipts:
                if sender == self._sender:
                    self._outbox.pop(serial, None)

    def refresh(self, model: GlobalModel) -> None:
        """Take in a published global model, in any order."""
        with self._lock:
            self._refresh(model)

    def _refresh(self, model: GlobalModel) -> None:
        width = features_of(self._step, len(model.weights))
        models = self._models_for(width)
        if width != models.global_.width:
            raise ValueError(
                f"global model {model.version} has {width} features, client {self.client} "
                f"{models.global_.width}: use the same on both sides"
            )
        if not np.isfinite(model.weights).all():
            raise ValueError(f"global model {model.version} has a weight that is not finite")
        models.refresh(model)
        self._models = models

    def save(self, path: str | Path) -> None:
        """Put all that the client knows into one file, whole or not at all.

        What was chosen, rewarded and confirmed before is safe once this has returned.
        """
        with self._lock:
            models, pending = self._models, self._pending
            facts = {
                "kind": KIND,
                "options": self._options,
                "step": as_fact(self._step, LEARNERS),
                "policy": as_fact(self.policy, POLICIES),
                "generator": generator_state(self._rng, self.client),
                "sender": self._sender,
                "sent": self._sent,
                "rewarded": self._rewarded,
                "learned": self._learned,
                "pending": pending.facts(),
                "models": models and [models.round, models.epoch, models.version],
            }
            arrays = pending.arrays()
            packed = [np.frombuffer(one.pack(), np.uint8) for one in self._outbox.values()]
            arrays |= named("outbox", pack_rows(packed, np.uint8))
            arrays["outbox serials"] = np.array([*self._outbox], np.uint64)
            if models is not None:
                for side, model in (("local", models.local), ("global", models.global_)):
                    arrays |= named(side, model.state())
            if self._mixed is not None:
                arrays |= named("mixed", self._mixed.state())
            write(Path(path), facts, arrays)

    @classmethod
    def load(
        cls,
        path: str | Path,
        policy: Policy | None = None,
        log: Callable[[Event], object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Go on from a file that `save` has written, as if nothing had happened since.

        Decisions made after that, and not saved, are forgotten; their ids are not used again.

        Parameters
        ----------
        path
            The file.
        policy
            How it explores; None for the policy that was saved. Those of one's own are not saved.
        log, clock
            As of a new client.
        """
        facts, arrays = read(Path(path))
        check_kind(facts, KIND, path)
        policy = policy or from_fact(facts["policy"], POLICIES)
        if policy is None:
            raise ValueError(f"{path} was saved with a policy of one's own: give `policy`")
        rng, step = generator_from(facts["generator"]), from_fact(facts["step"], LEARNERS)
        client = cls(policy, seed=rng, step=step, log=log, clock=clock, **facts["options"])
        client._restore(facts, arrays)
        return client

    def _restore(self, facts: dict[str, Any], arrays: Arrays) -> None:
        self._sender, self._sent = facts["sender"], new_epoch(after=facts["sent"])
        self._rewarded, self._learned = facts["rewarded"], facts["learned"]
        self._pending.restore(facts["pending"], arrays)
        if facts["models"] is None:
            return
        width = arrays["global weights"].size - 1
        models = self._models = self._new_models(width)
        models.round, models.epoch, models.version = facts["models"]
        for side, model in (("local", models.local), ("global", models.global_)):
            model.restore(part(side, arrays))
        if (kept := part("mixed", arrays)) and (mixed := self._mixed_with(models)) is not None:
            mixed.restore(kept)
            self._mixed = mixed
        packed = unpack_rows(part("outbox", arrays))
        for serial, one in zip(arrays["outbox serials"].tolist(), packed, strict=True):
            self._outbox[serial] = Upload.unpack(one.tobytes(), models.upload_width)

    def _settle(self, waiting: Unrewarded, reward: float | None, expired: bool = False) -> None:
        decision = waiting.decision
        if reward is not None and (self.learn_from == "all" or decision.explores):
            x_global, x_local = waiting.x_global, waiting.x_local
            models = self._models_for(x_global.shape[1])
            if self._mixed is not None:
                self._mixed.learn(models, x_global, x_local, reward)
            upload = models.observe(x_global, x_local, np.array([reward], np.float32))
            self._learned += 1
            if upload is not None and x_global.shape[1]:
                self._sent += 1
                self._outbox[self._sent] = upload
        if self._log is not None and waiting.contexts is not None:
            chosen = *waiting.contexts, decision.action, decision.probabilities
            made = decision.turn, decision.time, decision.model
            self._log(Event(self.client, decision.id, *chosen, reward, expired, *made))

    def _models_for(self, features_global: int) -> Client | RidgeClient:
        """The models; new ones of that width while their width is not known."""
        return self._models or self._new_models(features_global)

    def _mixed_with(self, models: Client | RidgeClient) -> MixedRewards | None:
        """What is mixed; None if nothing is."""
        span = self._options["mix"]
        if span is None or self._mixed is not None:
            return self._mixed
        features = max(len(models.global_.weights) - 1, 0) + self._features_local
        return MixedRewards(self._step, features, (span[0], span[1]))

    def _new_models(self, features_global: int) -> Client | RidgeClient:
        number = number_of(self.client)
        return new_client(self._step, features_global, self._features_local, number)


def _check_reward(reward: float) -> None:
    if not isinstance(reward, Real) or not abs(reward) <= LARGEST:
        raise ValueError(f"a reward must be a finite number, not {reward!r}")
