"""What the server knows of its clients."""

from dataclasses import dataclass, field


@dataclass
class Member:
    """What the server knows of a client.

    Attributes
    ----------
    confirmed, beyond
        Uploads below number `confirmed` have come, and those in `beyond`.
    applied, repeated, rows
        Uploads used, uploads that came again and changed nothing, and rows used.
    loss
        Mean progressive loss of its newest upload, as it says.
    lag
        Rounds from the model that its newest upload was made with to the one it met.
    refused
        Refused uploads by reason.
    held_back
        Uploads that the other clients' rows spoke against, see `jury`.
    """

    confirmed: int = 0
    beyond: list[int] = field(default_factory=list)
    applied: int = 0
    repeated: int = 0
    rows: int = 0
    loss: float = 0.0
    lag: float = 0.0
    last_seen: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ignored: bool = False
    done: bool = False
    held_back: int = 0

    def has(self, number: int) -> bool:
        """Whether that upload has come."""
        return number < self.confirmed or number in self.beyond

    def note(self, number: int) -> None:
        """Remember that an upload has come."""
        self.beyond.append(number)
        while self.confirmed in self.beyond:
            self.beyond.remove(self.confirmed)
            self.confirmed += 1
