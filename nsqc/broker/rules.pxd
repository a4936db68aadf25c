# Delivery rules of a channel as C values, and the queues that only they need.

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.store.message cimport Delivery, Heap


# ====================================================================== rules
# The delivery rules of a channel, as C values. NULL stands for no rules: each check of a rule begins with that one
# branch.

cdef enum Overflow:             # the action at max_depth and max_bytes
    OVERFLOW_REFUSE             # refuses publishes
    OVERFLOW_DROP               # drops the oldest messages
    OVERFLOW_DIE                # moves them to the dead-letter topic


cdef struct ChannelRules:
    int64_t requeue_delay_ns        # 0: no back-off
    int64_t requeue_max_ns
    double requeue_backoff
    bint requeue_on_disconnect
    uint32_t max_attempts           # deliveries before a message goes to the dead-letter topic; 0: no limit
    bint ordered                    # max_in_flight is 1, and a failed message is redelivered next
    int64_t max_in_flight           # over all consumers; 0: no limit
    int64_t interval_ns             # average between deliveries; 0: no rate limit
    int64_t burst_ns                # how far deliveries may be ahead of that
    int64_t message_ttl_ns          # after publishing; then a message expires. 0: never
    bint expired_die                # expired messages go to the dead-letter topic; else they are dropped
    int64_t max_depth, max_bytes    # of waiting messages; 0: no limit
    Overflow overflow
    bint paces                      # max_in_flight or rate is set
    bint dies                       # messages may go to the dead-letter topic
    bint trims                      # the oldest messages are removed at such a limit
    bint watches                    # waiting messages may have to be removed


# Converts the key `overflow` of a rule. can_die: there is a dead-letter topic.
cdef Overflow overflow_of(object rule, bint can_die) except *
# From a nsqc.options.rules.ChannelRule; NULL if it is None or changes nothing. can_die: there is a dead-letter
# topic. Raises MemoryError.
cdef ChannelRules *rules_new(object rule, bint can_die) except? NULL
# How long a message waits after a failed delivery if the client gave no delay.
cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil


# ====================================================================== again
# Messages of a channel with message_ttl that were requeued and wait for redelivery. They keep their bodies, from
# whichever queue, and lie in a heap by publish time, so the oldest expires on time even if younger ones go first.
#
# They are redelivered in the order of their return, each after the messages that waited then. A slot of that order is
# empty once its delivery has expired.

cdef struct AgainSlot:
    Delivery *delivery      # NULL: expired
    int64_t after           # due once Channel.taken reaches this
    int64_t number          # count of those that came before it


cdef struct Again:
    Heap heap               # the deliveries, by publish time; owned. delivered_ns of each is its position in slots
    AgainSlot *slots        # owned; a ring, its room a power of two
    int64_t room
    int64_t first, end      # positions; slots are numbered
    int64_t came            # total deliveries added


cdef bint again_reserve(Again *again) noexcept nogil        # makes room for one more; False: no memory
# Adds a delivery that is in no heap. There must be room.
cdef void again_add(Again *again, Delivery *delivery, int64_t after) noexcept nogil
cdef AgainSlot *again_first(Again *again) noexcept nogil    # the next one; NULL: none
cdef void again_remove(Again *again, Delivery *delivery) noexcept nogil     # hands the delivery to the caller
cdef void again_drop_logged(Again *again) noexcept          # frees deliveries with messages of the log
# Frees the slots; the heap has been taken or is empty.
cdef void again_forget(Again *again) noexcept nogil


# ====================================================================== lost
# Consumers whose connections are lost with messages in flight, for requeue_on_disconnect. A walk over the heap of
# timeouts finds their deliveries, in slices. The heap changes between slices, so the walk is repeated until all of
# them are found.

cdef enum:
    RETURNED = -1           # owner of a delivery whose consumer is lost: due at once


cdef struct Lost:
    int64_t *owners         # ids of consumers, ascending; owned
    uint32_t count
    uint32_t room
    uint32_t at             # earlier items of the heap are still to be checked
    int64_t left            # deliveries not found yet
    int64_t idle            # items checked since the last one was found


# A consumer with messages in flight is lost. Without memory for it they wait for their timeout.
cdef void lost_add(Lost *lost, int64_t owner, int64_t in_flight) noexcept nogil
cdef bint lost_has(const Lost *lost, int64_t owner) noexcept nogil
# Checks some items; those of lost consumers are RETURNED and become due. Returns whether there are more.
cdef bint lost_step(Lost *lost, Heap *heap, int steps) noexcept nogil
cdef void lost_clear(Lost *lost) noexcept nogil
cdef void lost_free(Lost *lost) noexcept nogil
