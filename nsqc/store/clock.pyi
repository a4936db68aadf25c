from typing import final

@final
class Clock:
    def __init__(self) -> None: ...
