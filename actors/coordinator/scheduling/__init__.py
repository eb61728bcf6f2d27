"""The pure machines that give work to workers and money to calls: leases, queue, slots, budget."""
