class TopicOwner:
    closing: bool
    draining: bool
