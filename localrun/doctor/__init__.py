"""What works on this machine, what does not, and the command that fixes it.

finding    what a check says, and how checks run: each in time, none changing anything
software   Python and packages          engine   backends, devices, CPU features, OpenMP
resources  memory, swap, load, disk     network  the hub and its token
surface    terminal and settings        stores   models of every tool, duplicates, sessions, caches
selftest   a few tokens of a model that is here
"""
