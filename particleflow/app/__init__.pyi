from . import scenario as scenario
