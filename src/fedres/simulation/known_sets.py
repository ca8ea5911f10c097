"""The multiclass data sets that `load_data` knows by name.

Facts stand here, so that listing the sets need not read them, and so that a file with fewer rows
than its set is known to be cut short.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"


@dataclass(frozen=True)
class SetFiles:
    """File names under which a set may be found.

    Attributes
    ----------
    files
        Training rows, then test rows where the set has some.
    divide
        By what features are divided, so that every source of a set gives the same numbers.
    note
        What a figure must say of this source.
    """

    files: tuple[str, ...]
    divide: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Known:
    """Facts about a set.

    Attributes
    ----------
    name
        What `load_data` calls it.
    rows
        Number of training rows, then of test rows where the set has some.
    features, classes
        Their number.
    origin
        Where it comes from.
    libsvm
        LIBSVM's own files, best first.
    downloads
        File names on the LIBSVM site with their hashes, None where we know none.
    sample
        A set that stands for this one where it is absent.
    note
        What a figure must say of it.
    """

    name: str
    rows: tuple[int, ...]
    features: int
    classes: int
    origin: str
    libsvm: tuple[SetFiles, ...] = ()
    downloads: Mapping[str, str | None] = field(default_factory=dict)
    sample: str | None = None
    note: str = ""

    @property
    def sources(self) -> tuple[SetFiles, ...]:
        """File names to look for, best first.

        Examples
        --------
        >>> [source.files for source in SETS["letter"].sources]
        [('letter.scale', 'letter.scale.t'), ('letter.train.libsvm', 'letter.test.libsvm')]
        """
        parts = ("train", "test")[: len(self.rows)]
        own = SetFiles(tuple(f"{self.name}.{part}.libsvm" for part in parts))
        # An unscaled file is the last resort: it stands for the set only with a remark.
        return tuple(sorted((*self.libsvm, own), key=lambda source: bool(source.note)))


_SETS = (
    Known("digits", (1797,), 64, 10, "scikit-learn"),
    Known(
        "letter",
        (15000, 5000),
        16,
        26,
        "LIBSVM, UCI",
        (SetFiles(("letter.scale", "letter.scale.t")),),
        {"letter.scale": None, "letter.scale.t": None},
    ),
    Known(
        "pendigits",
        (7494, 3498),
        16,
        10,
        "LIBSVM, UCI",
        (SetFiles(("pendigits", "pendigits.t"), divide=100),),
        {"pendigits": None, "pendigits.t": None},
    ),
    Known(
        "shuttle",
        (43500, 14500),
        9,
        7,
        "LIBSVM, UCI",
        (SetFiles(("shuttle.scale", "shuttle.scale.t")),),
        {"shuttle.scale": None, "shuttle.scale.t": None},
    ),
    Known(
        "covtype",
        (581012,),
        54,
        7,
        "LIBSVM, UCI",
        (
            SetFiles(("covtype.scale01",)),
            SetFiles(("covtype",), note="covtype: features not scaled"),
        ),
        {"covtype.scale01.bz2": None},
    ),
    Known(
        "mnist",
        (60000, 10000),
        780,
        10,
        "LIBSVM, NIST",
        (SetFiles(("mnist.scale", "mnist.scale.t")), SetFiles(("mnist", "mnist.t"), divide=255)),
        {"mnist.scale.bz2": None, "mnist.scale.t.bz2": None},
    ),
    Known(
        "satimage",
        (4435, 2000),
        36,
        6,
        "LIBSVM, UCI",
        (SetFiles(("satimage.scale", "satimage.scale.t")),),
        {"satimage.scale": None, "satimage.scale.t": None},
    ),
    Known(
        "sensorless",
        (58509,),
        48,
        11,
        "LIBSVM, UCI",
        (
            SetFiles(("Sensorless.scale",)),
            SetFiles(("Sensorless",), note="sensorless: features not scaled"),
        ),
        {"Sensorless.scale": None},
        sample="sensorless2200",
    ),
    Known(
        "usps",
        (7291, 2007),
        256,
        10,
        "LIBSVM, USPS",
        (SetFiles(("usps", "usps.t")),),
        {
            "usps.bz2": "md5:ec16c51db3855ca6c91edd34d0e9b197",
            "usps.t.bz2": "md5:8ea070ee2aca1ac39742fdd1ef5ed118",
        },
    ),
    Known(
        "sensorless2200",
        (2200,),
        48,
        11,
        "of sensorless",
        note="sensorless2200: a sample of 2,200 of the 58,509 rows of sensorless",
    ),
    Known("texture", (5500,), 40, 11, "ELENA, KEEL"),
)

SETS = {known.name: known for known in _SETS}
