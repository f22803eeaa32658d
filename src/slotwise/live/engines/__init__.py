"""The engines that execute jobs, behind one protocol."""
