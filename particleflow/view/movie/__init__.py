"""Movies: a stage that stands still, sprites that move over it, and a writer of frames."""
