from typing import Final

STRING: Final[int]
BOOL: Final[int]
INT32: Final[int]
INT64: Final[int]

class GoJSONError(ValueError): ...

def decode_struct(text: bytes, kinds: dict[str, int]) -> dict[str, str | bool | int]: ...
def decode_strings(text: bytes) -> list[str]: ...
