from typing import Never, final

NO_NUMBER: int

@final
class TopicPlace:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def next(self) -> int: ...

@final
class Earlier:
    @property
    def damaged(self) -> int: ...
    @property
    def channels(self) -> list[bytes]: ...
    @property
    def topic_cursor(self) -> int | None: ...
    @property
    def reached(self) -> int: ...
