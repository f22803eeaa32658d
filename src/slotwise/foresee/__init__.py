"""Look ahead from a situation: when waiting jobs start, what would change the queues, which free capacity nothing can use."""
