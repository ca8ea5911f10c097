"""What Flower carries between server and clients: a head in JSON and a body of bytes.

Server to client, a `Task`: the newest global model, and which uploads the server has safely.
Client to server, a `Reply`: the uploads of this task, and earlier ones whose reply was lost.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

LONGEST_HEAD = 100_000
LONGEST_NAME = 100
LARGEST_NUMBER = 2**32  # an upload counts in four bytes


def fit_name(name: str) -> bool:
    """Whether a client may be called that."""
    return 1 <= len(name) <= LONGEST_NAME and name.isprintable()


@dataclass(frozen=True)
class Task:
    """One message to a client.

    Examples
    --------
    >>> task = Task("s", "t", b"model", have=2)
    >>> Task.unpack(*task.pack()) == task
    True
    """

    session: str  # which training this is; a client begins afresh in a new one
    task: str  # unique to it: delivered twice, it is answered twice with the same reply
    model: bytes  # a packed `GlobalModel`
    have: int = 0  # the server has safely the client's uploads below this number,
    also: tuple[int, ...] = ()  # and these
    waiting: tuple[str, ...] = ()  # tasks of the same node still under way: nothing of them is lost
    started: int = 0  # when the server's process did: versions of the model may begin again with it
    last: bool = False  # whether to work on no more rows, only to keep the model

    def pack(self) -> tuple[str, bytes]:
        """Head and body."""
        head = {name: value for name, value in asdict(self).items() if name != "model"}
        return json.dumps(head), self.model

    @classmethod
    def unpack(cls, head: str, body: bytes) -> "Task":
        """Read head and body; a client trusts its server."""
        values = json.loads(head)
        values["also"], values["waiting"] = tuple(values["also"]), tuple(values["waiting"])
        return cls(**values, model=body)


@dataclass(frozen=True)
class Sent:
    """One upload within a reply, and how well its rows were predicted before they were learned."""

    number: int
    loss: float  # mean over the rows
    upload: bytes
    accuracy: float | None = None  # the share whose class was predicted; None of numbers


@dataclass(frozen=True)
class Reply:
    """One message from a client.

    Examples
    --------
    >>> reply = Reply("clinic-3", (Sent(0, 0.5, b"abc"), Sent(1, 0.25, b"de")))
    >>> Reply.unpack(*reply.pack()) == reply
    True
    >>> Reply.unpack('{"client": 3}', b"")
    Traceback (most recent call last):
        ...
    ValueError: broken head
    """

    client: str  # the name it has for itself; nodes may come back under new ids
    sent: tuple[Sent, ...] = ()  # in the order they were made
    done: bool = False  # whether the client has no more rows
    first: int = 0  # the client holds no upload below this number: the server has said it has them
    error: str = ""  # its kind, where one kept the client from working; its words may quote data

    def pack(self) -> tuple[str, bytes]:
        """Head and body."""
        sent = [[one.number, one.loss, len(one.upload), one.accuracy] for one in self.sent]
        head = {"client": self.client, "sent": sent, "done": self.done, "first": self.first}
        head["error"] = self.error
        return json.dumps(head), b"".join(one.upload for one in self.sent)

    @classmethod
    def unpack(cls, head: Any, body: Any) -> "Reply":
        """Read head and body, or say in two words what is wrong; a server trusts nobody."""
        try:
            if not isinstance(body, bytes) or len(head) > LONGEST_HEAD:
                raise ValueError
            values = json.loads(head)
            client, done, error = values["client"], values["done"], values["error"]
            first = values["first"]
            fine = isinstance(client, str) and isinstance(done, bool)
            fine &= type(first) is int and 0 <= first < LARGEST_NUMBER
            fine &= isinstance(error, str) and (not error or error.isidentifier())
            fine &= len(error) <= LONGEST_NAME
            sent, at = [], 0
            for number, loss, size, right in values["sent"]:
                if type(number) is not int or type(size) is not int or size < 1 or number < 0:
                    raise ValueError
                if right is not None and not 0 <= float(right) <= 1:
                    raise ValueError
                share = None if right is None else float(right)
                sent.append(Sent(number, float(loss), body[at : at + size], share))
                at += size
            if not fine or at != len(body):
                raise ValueError
        except Exception:  # whatever a stranger's text does to the reader, it is the stranger's
            raise ValueError("broken head") from None
        if not fit_name(client):
            raise ValueError("unfit name")
        return cls(client, tuple(sent), done, first, error)
