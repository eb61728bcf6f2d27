"""Which worker gets which work: leases, queues, slots, budget."""
