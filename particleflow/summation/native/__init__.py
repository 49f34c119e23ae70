"""The exact sum in native code: `native.Native`, the summation, and `build.library`, what there is on this machine."""
