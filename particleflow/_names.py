"""How a class is called in files: in scenarios, in stored metadata, in error messages about both. Free of JAX."""


def snake_case(name: str) -> str:
    """The kind of a class: AbcDef becomes abc_def, StudentT becomes student_t."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")
