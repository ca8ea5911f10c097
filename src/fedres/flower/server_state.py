"""The server's side of a Flower run: the global model, who has sent what, and when to stop.

Uploads are applied when they come, row after row, whatever round they were made in; nobody is
waited for. What a client is told to be safe is on disk first: a task confirms only uploads that
the checkpoint holds.
"""

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fedres.core.one_against_all import OutputModels
from fedres.core.receipts import new_epoch
from fedres.flower.app_settings import AppSettings
from fedres.flower.checks import RefusedError, checked
from fedres.flower.global_side import GlobalSide
from fedres.flower.log import LOG
from fedres.flower.members import Member, Members, Node
from fedres.flower.progress import Progress
from fedres.flower.run_folder import Checkpoint, holds_run
from fedres.flower.wire import Reply, Sent, Task

IN_FLIGHT = 2  # messages a node: it has the next one at hand when it is done with one
DONE_REST = 300.0  # seconds until a client that had no more rows is asked again
FORGOTTEN = 0.1  # of a refusal, for every upload used
FARTHEST = 10_000  # how far ahead of the confirmed uploads a client's counter may be


class TaskUnderWay(NamedTuple):
    """A task under way: to which node, and how many bytes its model has."""

    node: int
    size: int


class ServerState:
    """A server between two messages.

    `settings.resume` goes on from the checkpoint in the folder; `clock` gives seconds that only
    ever grow, for the stop after a time and for who is absent.
    """

    def __init__(
        self, settings: AppSettings, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings, self.folder, self.clock = settings, folder, clock
        self._side = GlobalSide(settings)
        self.session = uuid.uuid4().hex
        self._started = new_epoch()
        self.progress, self.before = Progress(), 0.0
        self.members = Members(settings.bind_names)
        self.strangers: Counter[str] = Counter()
        self.reason, self._finished = "", False
        self.flights: dict[str, TaskUnderWay] = {}
        self._news: dict[int, dict[str, Any]] = {}
        self._obeyed = 0  # the newest order carried out
        self._nodes: defaultdict[int, Node] = defaultdict(lambda: Node(clock()))
        self._newest: dict[str, float] = {}  # when something new of a member came last
        self._seen = clock()  # when anybody was there last
        self._alive = 1
        self._dirty = True
        if settings.resume != holds_run(folder):
            raise ValueError(
                f"there is no checkpoint in {folder}: run without --resume"
                if settings.resume
                else f"{folder} holds a run: resume it, or name another folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._checkpoint = Checkpoint(folder)
        if settings.resume:
            self._load()
        self._checkpoint.describe(settings.to_config())
        self._began = clock()

    @property
    def global_(self) -> OutputModels:
        """The newest global model."""
        return self._side.model

    @property
    def version(self) -> int:
        """How many uploads it has learned from."""
        return self._side.version

    @property
    def seconds(self) -> float:
        """Seconds of work, those before a resume included."""
        return self.before + self.clock() - self._began

    def tasks(self, nodes: Iterable[int], last: bool = False) -> list[tuple[int, Task]]:
        """What to send now: the newest model to every node with room for it."""
        self._obey()
        self.save()
        online = list(nodes)
        self.members.online = set(online)
        self.keep_only(online)
        under_way = defaultdict(list)
        for sent, flight in self.flights.items():
            under_way[flight.node].append(sent)
        model = self._side.packed()
        new = []
        self._alive = 0
        for node in online:
            member, waiting = self._member(node), under_way[node]
            have, also = (member.confirmed, tuple(member.beyond)) if member else (0, ())
            for _ in range(self._wanted(node, member, len(waiting), last)):
                token = uuid.uuid4().hex
                order = (have, also, tuple(waiting), self._started, last)
                self.flights[token] = TaskUnderWay(node, len(model))
                waiting.append(token)
                new.append((node, Task(self.session, token, model, *order)))
        return new

    def _member(self, node: int) -> Member | None:
        return self.members.get(self.members.name_of.get(node, ""))

    def _wanted(self, node: int, member: Member | None, waiting: int, last: bool) -> int:
        """How many tasks to send to a node that is there."""
        now, here = self.clock(), self._nodes[node]
        if (now < here.rests_until and not last) or (member and member.ignored):
            return 0
        if not here.faults:
            self._seen = now
        if member is None or not member.done:
            self._alive += 1
            return 1 if last else IN_FLIGHT - waiting
        if not last and (waiting or now < here.ask_again):
            return 0
        here.ask_again = now + DONE_REST  # its table may have grown
        return 1

    def keep_only(self, nodes: Iterable[int]) -> None:
        """Wait no more for nodes that are gone; what they did, they will send again."""
        online = set(nodes)
        for task in [task for task, flight in self.flights.items() if flight.node not in online]:
            self.lost(task)

    def lost(self, task: str) -> TaskUnderWay | None:
        """A task that no reply will come to, or has; what it did is asked for again."""
        flight = self.flights.pop(task, None)
        if flight is not None:
            self._nodes[flight.node].room += 1
        return flight

    def failed(self, task: str) -> None:
        """A task that the node's process died of: what it did is asked for again, but not soon."""
        if flight := self.lost(task):
            self._fault(flight.node, "it died")

    def _fault(self, node: int, kind: str) -> None:
        """Leave a node with a fault of its own in peace, each time for longer."""
        seconds = self._nodes[node].fault(self.clock())
        client = self.members.name_of.get(node)
        LOG.warning("fedres: %s: %s; asked again in %.0f s", client or "a node", kind, seconds)
        if client is not None and client in self.members:
            self.members[client].fault(kind)
            self.members.note_change(client)

    def receive(self, task: str, head: Any, body: Any) -> None:
        """Take in a reply to a task, if it is worth it."""
        flight = self.lost(task)
        if flight is None:
            return
        self._dirty = True
        try:
            reply = Reply.unpack(head, body)
            member = self.members.claim(reply.client, flight.node)
        except ValueError as error:
            # It may be a mistake that somebody mends, and a node without a key that was restarted
            # has its name again when Flower gives the old one up: nobody is banned for it.
            self.strangers[str(error)] += 1
            self._fault(flight.node, str(error))
            return
        if member.ignored:
            return
        member.last_seen = time.time()
        member.bytes_down += flight.size
        member.done = reply.done and not reply.sent
        here = self._nodes[flight.node]
        here.ask_again = (here.ask_again or self.clock() + DONE_REST) if member.done else 0.0
        self._newest.setdefault(reply.client, self.clock())
        member.begin_at(reply.first)
        if reply.error:
            self._fault(flight.node, reply.error)
        else:
            here.recover()
        for sent in reply.sent:
            # What is more than tasks can have made is left, and would be sent again.
            if member.ignored or not here.room:
                break
            self._take(reply.client, member, sent)
        self._note_change(reply.client)

    def _note_change(self, client: str) -> None:
        self.members.note_change(client)
        if self.members[client].ignored:
            self._side.forget(client)

    def _take(self, client: str, member: Member, sent: Sent) -> None:
        if member.has(sent.number):
            member.repeated += 1
            return
        if sent.number > member.confirmed + FARTHEST:
            self._refuse(client, member, "counter too far ahead")
            return
        self._nodes[member.node or 0].room -= 1
        self._newest[client] = self.clock()
        # A refused upload is noted too, or the client would send it for ever.
        member.note(sent.number)
        member.bytes_up += len(sent.upload)
        try:
            met = self.version
            upload = checked(sent, client, met, self.settings)
            self._side.apply(client, self.members, upload)
        except RefusedError as error:
            self._refuse(client, member, str(error))
            return
        except Exception as error:
            # Whatever one client's message brings about, the others' run goes on.
            LOG.exception("fedres: upload %d of %s could not be used", sent.number, client)
            self._refuse(client, member, f"error on the server: {type(error).__name__}")
            return
        member.strikes = max(0.0, member.strikes - FORGOTTEN)
        member.applied += 1
        member.rows += len(upload.y)
        member.loss, member.accuracy = sent.loss, sent.accuracy
        alive = max(1, self._alive)
        member.lag = (met - upload.version) / alive
        round_over = self.progress.upload(alive, sent.loss)
        LOG.debug(
            "fedres: upload %d of %s: %d rows, loss %.4f, %.1f rounds late", sent.number, client,
            len(upload.y), sent.loss, member.lag,
        )  # fmt: skip
        if round_over:
            now = self.progress
            LOG.info("fedres: round %d, mean loss %.4f", now.rounds, now.mean)
        self._news[self.version] = {
            "client": client,
            "number": sent.number,
            "made_with": upload.version,
            "made": self.version,
            "rows": len(upload.y),
            "loss": sent.loss,
            "accuracy": sent.accuracy,
            "lag": round(member.lag, 4),
            "bytes": len(sent.upload),
            "round": round(self.progress.rounds, 4),
            "seconds": round(self.seconds, 3),
        }

    def _refuse(self, client: str, member: Member, reason: str) -> None:
        member.refuse(reason, self.settings.refusals)
        LOG.warning("fedres: an upload of %s is refused: %s", client, reason)
        if member.ignored:
            LOG.warning("fedres: %s is ignored from now on, see `fedres flower forgive`", client)

    def finished(self) -> str | None:
        """Why to stop, or None."""
        settings, progress, members = self.settings, self.progress, self.members
        gone = bool(members.working) and all(map(self._absent, members.working))
        stops = {
            "rounds": settings.rounds and progress.rounds >= settings.rounds,
            "seconds": settings.seconds and self.seconds >= settings.seconds,
            "no improvement": settings.patience
            and progress.rounds - progress.best_round >= settings.patience,
            "no more rows": members.done
            and not (members.working or any(map(self._new, members.online))),
            "no more rows of those who are there": members.done and gone,
            "everyone is absent": gone and self._long_ago(self._seen),
        }
        return next((reason for reason, true in stops.items() if true), None)

    def _new(self, node: int) -> bool:
        """Whether a node was asked for the first time and has not answered yet."""
        here, known = self._nodes[node], node in self.members.name_of
        return not (known or here.faults or self._long_ago(here.first_asked))

    def _absent(self, client: str) -> bool:
        return self._long_ago(self._newest.get(client, self._began))

    def _long_ago(self, when: float) -> bool:
        return self.clock() - when > self.settings.absent_after

    def absent(self) -> list[str]:
        """Clients with rows to come of whom nothing came, and who are not waited for."""
        return sorted(filter(self._absent, self.members.working))

    def _obey(self) -> None:
        """Carry out what `fedres flower forgive` and `remove` have asked for."""
        for order in self._checkpoint.orders():
            self._dirty, self._obeyed = True, order.id
            member = self.members.get(order.client)
            if member is None:
                continue
            member.ignored = order.what == "remove"
            if order.what == "forgive":
                member.strikes = 0.0
                self.members.free(member)
                # Nodes that were refused this name are asked again at once, too.
                for node in set(self._nodes) - set(self.members.name_of):
                    self._nodes[node].recover()
            LOG.info("fedres: %s: %s", order.client, order.what)
            self._note_change(order.client)

    def finish(self) -> None:
        """Close the run: from now on its folder is complete."""
        self._finished = self._dirty = True
        self.save()

    def save(self) -> None:
        """Bring all that came since the last time to the disk."""
        if not self._dirty:
            return
        facts = {
            "reason": self.reason if self._finished else "",
            "session": self.session,
            "rounds": self.progress.rounds,
            "seconds": self.seconds,
            "best": [self.progress.best, self.progress.best_round],
            "strangers": dict(self.strangers),
            "clients": len(self.members),
            "absent": self.absent() if self._finished else [],
        }
        self._checkpoint.save(
            {**facts, **self._side.facts()},
            self._side.arrays(),
            {name: asdict(self.members[name]) for name in self.members.changed},
            self._news,
            obeyed=self._obeyed,
            **self._side.news(),
        )
        self._side.saved()
        self._news, self._dirty = {}, False
        self.members.changed.clear()

    def _load(self) -> None:
        facts, arrays, old, rows = self._checkpoint.load()
        self._side.load(facts, arrays, old, rows)
        self.session, self.before = facts["session"], facts["seconds"]
        self.progress = Progress(facts["rounds"], *facts["best"])
        self.strangers = Counter(facts["strangers"])
        self.members.load(facts["members"])
