"""Names of kinds: how a class is called in a scenario and in a file."""


def snake_case(name: str) -> str:
    """The kind of a class: AbcDef becomes abc_def."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")
