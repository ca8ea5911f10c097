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
from fedres.flower.member import Member
from fedres.flower.progress import Progress
from fedres.flower.run_folder import Checkpoint, holds_run
from fedres.flower.wire import Reply, Sent, Task

IN_FLIGHT = 2  # messages a node: it has the next one at hand when it is done with one
FIRST_REST, LONGEST_REST = 5.0, 300.0  # seconds without a task after a fault, and after many
DONE_REST = 300.0  # seconds until a client that had no more rows is asked again
FORGOTTEN = 0.1  # of a refusal, for every upload used
FARTHEST = 10_000  # how far ahead of the confirmed uploads a client's counter may be


class TaskUnderWay(NamedTuple):
    """A task under way: to which node, and how many bytes its model has."""

    node: int
    size: int


class Rest(NamedTuple):
    """Of a node with faults: how many there were in a row, and when it is asked again."""

    faults: int
    until: float


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
        self.members: dict[str, Member] = {}
        self.strangers: Counter[str] = Counter()
        self.reason, self._finished = "", False
        self.flights: dict[str, TaskUnderWay] = {}
        self._names: dict[int, str] = {}
        self._online: set[int] = set()
        self._bad_nodes: Counter[int] = Counter()
        self._news: dict[int, dict[str, Any]] = {}
        self._changed: set[str] = set()
        self._obeyed = 0  # the newest order carried out
        # Members who are not ignored: those with rows to come, and those without.
        self._working: set[str] = set()
        self._done: set[str] = set()
        self._resting: dict[int, Rest] = {}
        self._ask_again: dict[int, float] = {}  # when, of nodes without more rows
        self._present: dict[str, float] = {}  # when the node of a member was there last
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
        self._online = set(online)
        self.keep_only(online)
        under_way = defaultdict(list)
        for sent, flight in self.flights.items():
            under_way[flight.node].append(sent)
        model = self._side.packed()
        new = []
        self._alive = 0
        for node in online:
            name = self._names.get(node, "")
            member = self.members.get(name)
            rest = self._resting.get(node)
            if rest is None:
                self._present[name] = self.clock()
            elif self.clock() < rest.until and not last:
                continue
            if self._bad_nodes[node] >= self.settings.refusals or (member and member.ignored):
                continue
            if not (member and member.done):
                self._alive += 1
            elif not last and (under_way[node] or self.clock() < self._ask_again.get(node, 0.0)):
                continue
            else:  # its table may have grown
                self._ask_again[node] = self.clock() + DONE_REST
            have, also = (member.confirmed, tuple(member.beyond)) if member else (0, ())
            waiting = under_way[node]
            wanted = 1 if last or (member and member.done) else IN_FLIGHT - len(waiting)
            for _ in range(wanted):
                token = uuid.uuid4().hex
                order = (have, also, tuple(waiting), self._started, last)
                task = Task(self.session, token, model, *order)
                self.flights[task.task] = TaskUnderWay(node, len(model))
                waiting.append(task.task)
                new.append((node, task))
        return new

    def keep_only(self, nodes: Iterable[int]) -> None:
        """Wait no more for nodes that are gone; what they did, they will send again."""
        online = set(nodes)
        for task in [task for task, flight in self.flights.items() if flight.node not in online]:
            del self.flights[task]

    def lost(self, task: str) -> None:
        """A task that no reply will come to; what it did is asked for again."""
        self.flights.pop(task, None)

    def failed(self, task: str) -> None:
        """A task that the node's process died of: what it did is asked for again, but not soon."""
        flight = self.flights.pop(task, None)
        if flight is not None:
            self._fault(flight.node, "it died")

    def _fault(self, node: int, kind: str) -> None:
        """Leave a node with a fault of its own in peace, each time for longer."""
        faults = self._resting[node].faults + 1 if node in self._resting else 1
        seconds = min(FIRST_REST * 2 ** min(faults - 1, 20), LONGEST_REST)
        self._resting[node] = Rest(faults, self.clock() + seconds)
        client = self._names.get(node)
        LOG.warning("fedres: %s: %s; asked again in %.0f s", client or "a node", kind, seconds)
        if client in self.members:
            member = self.members[client]
            member.faults[kind] = member.faults.get(kind, 0) + 1
            self._note_change(client, member)

    def receive(self, task: str, head: Any, body: Any) -> None:
        """Take in a reply to a task, if it is worth it."""
        flight = self.flights.pop(task, None)
        if flight is None:
            return
        self._dirty = True
        try:
            reply = Reply.unpack(head, body)
            member = self._named(reply.client, flight.node)
        except ValueError as error:
            self.strangers[str(error)] += 1
            if isinstance(error, RefusedError) and not self.settings.bind_names:
                # A node without a key that was restarted: Flower gives the old one up in a minute.
                self._fault(flight.node, str(error))
            else:
                self._bad_nodes[flight.node] += 1
            return
        if member.ignored:
            return
        member.last_seen = time.time()
        member.bytes_down += flight.size
        member.done = reply.done and not reply.sent
        if member.done:
            self._ask_again.setdefault(flight.node, self.clock() + DONE_REST)
        else:
            self._ask_again.pop(flight.node, None)
        member.begin_at(reply.first)
        if reply.error:
            self._fault(flight.node, reply.error)
        else:
            self._resting.pop(flight.node, None)
        for sent in reply.sent:
            if member.ignored:
                break
            self._take(reply.client, member, sent)
        self._note_change(reply.client, member)

    def _named(self, client: str, node: int) -> Member:
        """The member of that name, if it is this node's."""
        if self._names.get(node, client) != client:
            raise RefusedError("changed its name")
        member = self.members.setdefault(client, Member())
        if member.node != node:
            gone = member.node not in self._online and not self.settings.bind_names
            if member.node is not None and not gone:
                LOG.warning(
                    "fedres: node %d says that it is %s, which is the name of node %d: it is "
                    "refused. If it took that one's place, `fedres flower forgive` frees the name",
                    node, client, member.node,
                )  # fmt: skip
                raise RefusedError("name of another node")
            LOG.info("fedres: %s is node %d from now on", client, node)
            self._names.pop(member.node, None)  # type: ignore[arg-type]
            member.node = node
        self._names[node] = client
        return member

    def _note_change(self, client: str, member: Member) -> None:
        self._changed.add(client)
        self._working.discard(client)
        self._done.discard(client)
        if not member.ignored:
            (self._done if member.done else self._working).add(client)
        else:
            self._side.forget(client)

    def _take(self, client: str, member: Member, sent: Sent) -> None:
        if member.has(sent.number):
            member.repeated += 1
            return
        if sent.number > member.confirmed + FARTHEST:
            self._refuse(client, member, "counter too far ahead")
            return
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
        member.refused[reason] = member.refused.get(reason, 0) + 1
        member.strikes += 1
        member.ignored |= member.strikes >= self.settings.refusals
        LOG.warning("fedres: an upload of %s is refused: %s", client, reason)
        if member.ignored:
            LOG.warning("fedres: %s is ignored from now on, see `fedres flower forgive`", client)

    def finished(self) -> str | None:
        """Why to stop, or None."""
        settings, progress = self.settings, self.progress
        if settings.rounds and progress.rounds >= settings.rounds:
            return "rounds"
        if settings.seconds and self.seconds >= settings.seconds:
            return "seconds"
        if settings.patience and progress.rounds - progress.best_round >= settings.patience:
            return "no improvement"
        if self._done and not self._working:
            return "no more rows"
        if self._working and all(map(self._absent, self._working)):
            return "no more rows of those who are there" if self._done else "everyone is absent"
        return None

    def _absent(self, client: str) -> bool:
        last = self._present.get(client, self._began)
        return self.clock() - last > self.settings.absent_after

    def absent(self) -> list[str]:
        """Clients with rows to come who are not there and are not waited for."""
        return sorted(filter(self._absent, self._working))

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
                self._names.pop(member.node, None)  # type: ignore[arg-type]
                self._resting.pop(member.node, None)  # type: ignore[arg-type]
                member.node = None
            LOG.info("fedres: %s: %s", order.client, order.what)
            self._note_change(order.client, member)

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
            {name: asdict(self.members[name]) for name in self._changed},
            self._news,
            obeyed=self._obeyed,
            **self._side.news(),
        )
        self._side.saved()
        self._news, self._changed, self._dirty = {}, set(), False

    def _load(self) -> None:
        facts, arrays, old, rows = self._checkpoint.load()
        self._side.load(facts, arrays, old, rows)
        self.session, self.before = facts["session"], facts["seconds"]
        self.progress = Progress(facts["rounds"], *facts["best"])
        self.strangers = Counter(facts["strangers"])
        for name, values in facts["members"].items():
            self.members[name] = member = Member(**{**values, "done": False})  # tables grow
            if member.node is not None:
                self._names[member.node] = name
            self._note_change(name, member)
        self._changed.clear()
