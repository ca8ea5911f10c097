"""Optional libraries: an error in one sentence if those of an extra are not installed.

`pyproject.toml` says which libraries an extra needs, and in which versions; nothing else does.
"""


class MissingExtraError(ImportError, ValueError):
    """A library of an extra is not installed, or in a version that does not work."""


def require(extra: str, user: str) -> None:
    """Raise unless all libraries of an extra are installed, in versions that work.

    Parameters
    ----------
    extra
        The extra, as ``flower``.
    user
        What needs it, as the error names it.

    Examples
    --------
    >>> require("ray", "--backend ray")
    """
    from importlib import metadata

    from packaging.requirements import Requirement

    wanted = [
        one
        for one in map(Requirement, metadata.requires("fedres") or ())
        if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate()
    ]
    for one in wanted:
        try:
            found = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            found = ""
        if not found or found not in one.specifier:
            problem = f"{one.name} {found} is installed" if found else "it is not installed"
            install = " ".join(f"'{each.name}{each.specifier}'" for each in wanted)
            raise MissingExtraError(
                f"{user} needs {one.name}{one.specifier}, and {problem}: run pip install {install}"
            )
