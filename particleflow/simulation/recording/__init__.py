"""What a run leaves behind: frames, checkpoints, provenance, and the fingerprint by which it is resumed.

recording    what the user wants to be kept, and where
recorder     keeps windows in memory or in a file with checkpoints, and resumes a run
provenance   the metadata: versions and machine, settings, what interacts
fingerprint  a hash of every argument that affects the content of the file
"""
