"""The live scheduler: the same core on the wall clock, durable, with engines that execute jobs."""
