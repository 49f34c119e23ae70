"""One run by several processes, on one machine or on many: how they find each other, and end if one of them is lost.

joining   the group that a process belongs to, from options, Slurm or Open MPI; connecting to it
watch     signs of life between the processes: one that is lost or stuck ends the run everywhere
"""
