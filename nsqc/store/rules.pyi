from typing import Final

ENABLED: Final[bool]
