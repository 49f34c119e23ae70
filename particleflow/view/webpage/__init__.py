"""The interactive page: a run as compressed arrays, and `assets/`, the script and style that play it offline."""
