"""The process that executes jobs on this machine. It outlives the service: run as a script, it needs the standard library only.

`python -I -S supervisor FOLDER` becomes a daemon that owns FOLDER while it holds the lock on FOLDER/lock, and listens on
FOLDER/socket for one service at a time, in lines of JSON. What it promises, whatever is killed when:

- an attempt of a job is started at most once: the log (`claims`) says so before the process exists;
- its end is told once and the same each time: the exit status is in the log before it is told;
- jobs go on while the service is away; the next one asks what is known.

Many jobs share one process and one log, which is why an empty job costs less than a millisecond here and not the 50 of a process
with its own supervisor.

- `claims`: the log, what it promises against which crash, and how it is kept short;
- `processes`: making processes, with their limits and CPUs, and ending them;
- `confining`: keeping jobs of other people out of the files of the service;
- `outputs`: the file that a job writes to, its size, and who still holds it;
- `talking`: the connection to the service;
- `rounds`: what is done in which order;
- `daemon`: the lock, the socket, and letting go of the terminal.
"""
