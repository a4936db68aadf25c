from nsqc.store.backlog import CommitOwner, CommitWaiter

class Publisher(CommitWaiter): ...
class ChannelOwner(CommitOwner): ...

class TopicOwner:
    closing: bool
    draining: bool
