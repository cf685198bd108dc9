"""Nightjar as it is installed: one package with those of a checkout, and what functions of your own import."""


def __getattr__(name: str) -> object:
    """What `from nightjar import` names. Outside the lab's processes, as in tests of your own, our folder joins
    the path at its end.
    """
    import sys

    if name.startswith("_"):
        raise AttributeError(name)
    if __path__[0] not in sys.path:
        sys.path.append(__path__[0])
    from functions.kernel import yours

    return getattr(yours, name)
