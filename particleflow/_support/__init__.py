"""Text, files, arrays, point sets, progress, signals and caches: helpers that know nothing of particles."""
