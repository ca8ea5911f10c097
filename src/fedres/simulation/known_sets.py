"""The multiclass data sets that `load_data` knows by name.

Facts stand here, so that listing the sets need not read them, and so that a file with fewer rows
than its set is known to be cut short.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedres.simulation.shops import FEATURES, SAMPLES, TEST_SAMPLES

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"


@dataclass(frozen=True)
class SetFiles:
    """File names under which a set may be found."""

    files: tuple[str, ...]  # training rows, then test rows where the set has some
    divide: float = 1.0  # of features: every source of a set is to give the same numbers
    note: str = ""  # what a figure must say of this source


@dataclass(frozen=True)
class KnownSet:
    """Facts about a set."""

    name: str  # what `load_data` calls it
    rows: tuple[int, ...]  # number of training rows, then of test rows where the set has some
    features: int
    classes: int
    origin: str
    libsvm: tuple[SetFiles, ...] = ()  # LIBSVM's own files, best first
    # File names on the LIBSVM site with their hashes, None where we know none.
    downloads: Mapping[str, str | None] = field(default_factory=dict)
    sample: str | None = None  # a set that stands for this one where it is absent
    note: str = ""  # what a figure must say of it
    built_in: str = ""  # description of a set that needs no file

    @property
    def sources(self) -> tuple[SetFiles, ...]:
        """File names to look for, best first.

        Examples
        --------
        >>> [source.files for source in SETS["letter"].sources]
        [('letter.scale', 'letter.scale.t'), ('letter.train.libsvm', 'letter.test.libsvm')]
        """
        own = SetFiles(self._files(self.name))
        # An unscaled file is the last resort: it stands for the set only with a remark.
        return tuple(sorted((*self.libsvm, own), key=lambda source: bool(source.note)))

    @property
    def raw_sources(self) -> tuple[SetFiles, ...]:
        """File names of its features before scaling."""
        own = SetFiles(self._files(f"{self.name}.raw"))
        return (own, *(source for source in self.libsvm if source.note))

    def _files(self, name: str) -> tuple[str, ...]:
        parts = ("train", "test")[: len(self.rows)]
        return tuple(f"{name}.{part}.libsvm" for part in parts)


def _libsvm(
    name: str,
    rows: tuple[int, ...],
    features: int,
    classes: int,
    file: str,
    *,
    origin: str = "LIBSVM, UCI",
    divide: float = 1.0,
    raw: str = "",
    packed: str = "",
    hashes: Sequence[str | None] = (None, None),
    sample: str | None = None,
) -> KnownSet:
    """A set of the LIBSVM site, perhaps also `raw`; test rows are in a file with the ending .t."""
    files = (file, f"{file}.t")[: len(rows)]
    downloads = dict(zip((part + packed for part in files), hashes, strict=False))
    unscaled = (SetFiles((raw,), note=f"{name}: features not scaled"),) if raw else ()
    libsvm = (SetFiles(files, divide), *unscaled)
    return KnownSet(name, rows, features, classes, origin, libsvm, downloads, sample)


_SAMPLE = "sensorless2200"
_SETS = (
    KnownSet(
        "digits",
        (1797,),
        64,
        10,
        "scikit-learn",
        built_in="images of handwritten digits, installed with scikit-learn",
    ),
    KnownSet(
        "shops",
        (SAMPLES, TEST_SAMPLES),
        FEATURES,
        2,
        "generated",
        built_in="generated customers who buy or not, one client per shop, rows are per shop",
    ),
    _libsvm("letter", (15000, 5000), 16, 26, "letter.scale"),
    _libsvm("pendigits", (7494, 3498), 16, 10, "pendigits", divide=100),
    _libsvm("shuttle", (43500, 14500), 9, 7, "shuttle.scale"),
    _libsvm("covtype", (581012,), 54, 7, "covtype.scale01", raw="covtype", packed=".bz2"),
    KnownSet(
        "mnist",
        (60000, 10000),
        780,
        10,
        "LIBSVM, NIST",
        (SetFiles(("mnist.scale", "mnist.scale.t")), SetFiles(("mnist", "mnist.t"), divide=255)),
        {"mnist.scale.bz2": None, "mnist.scale.t.bz2": None},
    ),
    _libsvm("satimage", (4435, 2000), 36, 6, "satimage.scale"),
    _libsvm("sensorless", (58509,), 48, 11, "Sensorless.scale", raw="Sensorless", sample=_SAMPLE),
    _libsvm(
        "usps",
        (7291, 2007),
        256,
        10,
        "usps",
        origin="LIBSVM, USPS",
        packed=".bz2",
        hashes=("md5:ec16c51db3855ca6c91edd34d0e9b197", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
    ),
    KnownSet(
        _SAMPLE,
        (2200,),
        48,
        11,
        "of sensorless",
        note=f"{_SAMPLE}: a sample of 2,200 of the 58,509 rows of sensorless",
    ),
    KnownSet("texture", (5500,), 40, 11, "ELENA, KEEL"),
)

SETS = {known.name: known for known in _SETS}
